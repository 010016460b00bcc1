//! Words, and what is made of them. Sites are Russian: titles and phrases are in Cyrillic letters
//! of two bytes, addresses have the same words in Latin ones.

use thalweg_base::Prng;

use super::{Page, Referer, Seed, skewed};

/// The most frequent first. Those in capitals are foreign and stay as they are in Russian.
const FREQUENT: &str = "news foto video kupit avto onlain kino sport igry skachat besplatno \
    moskva rabota dom film serial pogoda forum kniga muzyka prodazha tsena magazin kvartira \
    otdykh BMW IPHONE SAMSUNG FACEBOOK odezhda obuv remont mebel zdorove retsept ulitsa gorod \
    biznes bank kredit turizm bilet otel shkola deti zhenshchina muzhchina svadba stroitelstvo \
    tekhnika televizor kompyuter noutbuk telefon planshet programma windows GOOGLE CHROME \
    ANDROID TWITTER TOYOTA NISSAN FORD AUDI zapchasti shiny dvigatel motor benzin doroga karta \
    metro rayon oblast vakansii rezyume zarplata kursy obuchenie universitet ekzamen istoriya \
    politika ekonomika vybory prezident zakon sud voyna futbol khokkey tennis boks chempionat \
    liga matchi transfer rezultaty statistika kalendar goroskop sonnik gadanie psikhologiya \
    lyubov znakomstva chat pochta kartinki oboi anekdoty stikhi pozdravleniya podarki tsvety";

const WORDS: u64 = 20_000;
/// Beyond the frequent ones. Sites have such names, or what one of the large ones is called would
/// decide how much a query for a frequent word finds.
const RARE: u64 = 200;

const CONSONANTS: [&str; 18] =
    ["b", "v", "g", "d", "zh", "z", "k", "l", "m", "n", "p", "r", "s", "t", "f", "kh", "ch", "sh"];
const VOWELS: [&str; 6] = ["a", "e", "i", "o", "u", "y"];
const ENDINGS: [&str; 6] = ["", "n", "t", "k", "r", "ya"];

/// The longer first.
const LETTERS: [(&str, &str); 32] = [
    ("shch", "щ"),
    ("zh", "ж"),
    ("kh", "х"),
    ("ts", "ц"),
    ("ch", "ч"),
    ("sh", "ш"),
    ("yu", "ю"),
    ("ya", "я"),
    ("a", "а"),
    ("b", "б"),
    ("v", "в"),
    ("g", "г"),
    ("d", "д"),
    ("e", "е"),
    ("z", "з"),
    ("i", "и"),
    ("k", "к"),
    ("l", "л"),
    ("m", "м"),
    ("n", "н"),
    ("o", "о"),
    ("p", "п"),
    ("r", "р"),
    ("s", "с"),
    ("t", "т"),
    ("u", "у"),
    ("f", "ф"),
    ("y", "ы"),
    ("w", "в"),
    ("x", "кс"),
    ("h", "х"),
    ("j", "й"),
];

/// Name, where its results lie, and its number in `SearchEngineID`.
pub(super) const SEARCH_ENGINES: [(&str, i16); 5] = [
    ("http://yandex.ru/yandsearch?lr=213&text=", 2),
    ("http://www.google.ru/search?ie=utf-8&q=", 3),
    ("http://go.mail.ru/search?mailru=1&q=", 4),
    ("http://nova.rambler.ru/search?query=", 5),
    ("http://www.bing.com/search?q=", 13),
];

/// Three of four searches are on the first.
pub(super) const SEARCH_ENGINES_BY_SHARE: [usize; 20] =
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4];

const TOP_LEVELS: [&str; 8] = ["ru", "ru", "ru", "ru", "com", "ua", "net", "su"];
const GOOGLE_SITES: [&str; 3] = ["maps", "plus", "translate"];

pub(super) struct Words {
    latin: Vec<String>,
    russian: Vec<String>,
}

impl Words {
    pub fn new() -> Words {
        let mut words = Words { latin: vec![], russian: vec![] };
        for word in FREQUENT.split_whitespace() {
            let foreign = word.starts_with(char::is_uppercase);
            words.latin.push(word.to_lowercase());
            words.russian.push(if foreign { capitalised(word) } else { russian(word) });
        }
        for i in words.latin.len() as u64..WORDS {
            let seed = Seed(i);
            let syllables = 2 + seed.below(1, 3);
            let syllable =
                |k| seed.pick(10 + k, &CONSONANTS).to_owned() + seed.pick(20 + k, &VOWELS);
            let word = (0..syllables).map(syllable).collect::<String>() + seed.pick(2, &ENDINGS);
            words.russian.push(russian(&word));
            words.latin.push(word);
        }
        words
    }

    fn rare(&self, number: u64) -> &str {
        &self.latin[(RARE + number) as usize]
    }
}

fn russian(latin: &str) -> String {
    let mut rest = latin;
    let mut word = String::new();
    while let Some(first) = rest.chars().next() {
        let found = LETTERS.iter().find(|(letters, _)| rest.starts_with(letters));
        match found {
            Some((letters, letter)) => {
                word.push_str(letter);
                rest = &rest[letters.len()..];
            }
            None => {
                word.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    word
}

/// The first letter large, the others small.
fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters.flat_map(char::to_lowercase)).collect()
}

fn word(random: &mut Prng) -> usize {
    skewed(random, WORDS, 3) as usize
}

/// The same four words in a page's address and its title.
fn subject(page: Page) -> [usize; 4] {
    let mut random = Prng::new(page.seed().number(5));
    [(); 4].map(|()| word(&mut random))
}

fn domain(site: u64, words: &Words, out: &mut String) {
    let seed = Seed(site);
    if site % 700 == 77 {
        out.push_str(seed.pick(6, &GOOGLE_SITES));
        out.push_str(".google.ru");
        return;
    }
    if seed.percent(7, 25) {
        out.push_str("www.");
    }
    out.push_str(words.rare(seed.below(8, WORDS - RARE)));
    if seed.percent(9, 60) {
        out.push('-');
        out.push_str(words.rare(seed.below(10, 300)));
    }
    out.push('.');
    out.push_str(seed.pick(11, &TOP_LEVELS));
}

pub(super) fn address(page: Page, words: &Words, out: &mut String) {
    let seed = page.seed();
    out.push_str(if Seed(page.site).percent(12, 3) { "https://" } else { "http://" });
    domain(page.site, words, out);
    out.push('/');
    if page.number == 0 {
        return;
    }
    let [a, b, c, d] = subject(page).map(|word| words.latin[word].as_str());
    let id = (seed.below(13, 90_000_000) + 10_000_000).to_string();
    let small = seed.below(14, 500).to_string();
    // A site keeps to one way of writing its addresses.
    let parts: &[&str] = match Seed(page.site).below(15, 4) {
        0 => &[a, "/", b, "-", c, "-", d, "-", &id, ".html"],
        1 => &["index.php?", a, "=", &id, "&", b, "=", c, "-", d, "&lang=ru"],
        2 => &[a, "/", b, "/", c, "_", d, "/", &id, "/?page=", &small],
        _ => &[a, ".aspx?group_cod_1s=", &small, "&", b, "=", &id, "#", c, "=", d],
    };
    parts.iter().for_each(|part| out.push_str(part));
    if seed.percent(16, 45) {
        let more = words.rare(seed.below(17, WORDS - RARE));
        let parts = ["&from=", more, "&category=", &small, "&sort=price,desc&per_page=50"];
        parts.iter().for_each(|part| out.push_str(part));
    }
}

pub(super) fn title(page: Page, words: &Words, out: &mut String) {
    // One page in eight has none.
    if page.seed().percent(18, 12) {
        return;
    }
    for (i, word) in subject(page).into_iter().enumerate() {
        let word = &words.russian[word];
        match i {
            0 => out.push_str(&capitalised(word)),
            _ => {
                out.push(' ');
                out.push_str(word);
            }
        }
    }
    out.push_str(if page.number == 0 { " — главная страница " } else { " | " });
    domain(page.site, words, out);
}

pub(super) fn phrase(number: u64, words: &Words, out: &mut String) {
    let mut random = Prng::new(Seed(number).number(19));
    for i in 0..1 + skewed(&mut random, 7, 2) {
        if i > 0 {
            out.push(' ');
        }
        out.push_str(&words.russian[word(&mut random)]);
    }
}

pub(super) fn referer(referer: Referer, words: &Words, out: &mut String) {
    match referer {
        Referer::Nothing => {}
        Referer::Page(page) => address(page, words, out),
        Referer::Search { engine, phrase: number } => {
            out.push_str(SEARCH_ENGINES[engine].0);
            let mut text = String::new();
            if let Some(number) = number {
                phrase(number, words, &mut text);
            }
            for byte in text.bytes() {
                match byte {
                    b' ' => out.push('+'),
                    b'a'..=b'z' | b'A'..=b'Z' => out.push(char::from(byte)),
                    _ => {
                        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                        let digits = [byte >> 4, byte & 15].map(|d| DIGITS[usize::from(d)]);
                        out.push('%');
                        digits.iter().for_each(|digit| out.push(char::from(*digit)));
                    }
                }
            }
        }
    }
}
