//! `thalweg check`.

use crate::Place;

fn loaded() -> Place {
    let place = Place::new();
    place.write("items.csv", "id,name\n1,one\n2,\n3,three\n");
    place.run(&["load", "test.db", "items", "items.csv", "-q"]).prints("");
    place
}

#[test]
fn a_sound_database_is_said_to_be_so() {
    let place = loaded();
    let ran = place.run(&["check", "test.db", "--decode"]).succeeds();
    assert!(ran.out.starts_with("all is as it was written: "), "{}", ran.out);
    place.run(&["check", "test.db", "-q"]).prints("");
}

#[test]
fn every_fault_is_named_and_the_exit_code_says_damaged() {
    let place = loaded();
    let extents = std::fs::read_dir(place.path("test.db/extents")).unwrap();
    let file = extents.map(|e| e.unwrap().path()).next().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    let words = [name, "\"test.db\" is damaged", "public.items"];
    place.run(&["check", "test.db", "-q"]).fails(4, &words);

    let log = place.path("test.db/log/00000000000000000001.commit");
    std::fs::write(&log, "nothing").unwrap();
    place.run(&["check", "test.db"]).fails(4, &["1.commit"]);
}
