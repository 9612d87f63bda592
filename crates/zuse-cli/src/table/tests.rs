use super::*;

fn rows(text: &[&[&str]]) -> Vec<Vec<String>> {
    text.iter()
        .map(|r| r.iter().map(|c| (*c).to_owned()).collect())
        .collect()
}

#[test]
fn people_get_two_spaces_and_scripts_get_tabs() {
    let columns = [
        Column::new("name", Side::Left),
        Column::new("used", Side::Right),
        Column::new("avail", Side::Right),
        Column::new("refer", Side::Right),
        Column::new("mountpoint", Side::Left),
    ];
    let rows = rows(&[
        &["tank", "18.8M", "101M", "1K", "none"],
        &["tank/clone", "0B", "101M", "292K", "none"],
        &["tank/data", "632K", "101M", "618K", "/data"],
    ]);
    assert_eq!(
        render(&columns, &rows, false),
        "NAME         USED  AVAIL  REFER  MOUNTPOINT\n\
         tank        18.8M   101M     1K  none\n\
         tank/clone     0B   101M   292K  none\n\
         tank/data    632K   101M   618K  /data\n"
    );
    assert_eq!(
        render(&columns, &rows[..1], true),
        "tank\t18.8M\t101M\t1K\tnone\n"
    );
}
