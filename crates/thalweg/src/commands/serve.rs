//! `thalweg serve`: a database for many clients.

use std::net::SocketAddr;

use thalweg_server::{Config, Server};

use crate::database::{self, Settings};
use crate::failure::Outcome;

/// Serve a database to clients: the PostgreSQL protocol, Arrow Flight SQL, metrics over HTTP
#[derive(clap::Args)]
pub struct Args {
    /// Folder or object-store prefix of the database
    #[arg(value_name = "DB")]
    database: String,

    /// Where the PostgreSQL protocol is spoken
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5432")]
    pg: SocketAddr,

    /// Where Arrow Flight SQL is spoken
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:31337")]
    flight: SocketAddr,

    /// Where metrics and health are shown
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    http: SocketAddr,

    /// Create the database if it is not there
    #[arg(long)]
    create: bool,
}

pub fn run(args: Args) -> Outcome {
    let settings = Settings { stays: true, ..Settings::default() };
    let engine = database::open(&args.database, args.create, &settings)?;
    let config = Config {
        pg: Some(args.pg),
        flight: Some(args.flight),
        http: Some(args.http),
        ..Config::default()
    };
    let server = Server::start(engine, config)?;
    println!("listening");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let _keep = stop;
    let _ = stopped.recv();
    server.shutdown();
    Ok(())
}
