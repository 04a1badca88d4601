package setting

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

type percent uint8

func (p *percent) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "%d%%", p)
	return err
}

func (p percent) String() string { return fmt.Sprintf("%d%%", uint8(p)) }

// every has a setting of each kind.
type every struct {
	Bool   bool              `key:"a.bool" default:"true" help:"h"`
	Text   string            `key:"a.text" default:"x"`
	Word   string            `key:"a.word" default:"b" words:"a b"`
	Int    int               `key:"a.int" default:"2" min:"1" max:"3"`
	Uint   uint64            `key:"a.uint" default:"7" min:"1"`
	Span   time.Duration     `key:"a.span" default:"1s" min:"5ms" zero:"never"`
	List   []string          `key:"a.list" default:"a,b"`
	Map    map[string]string `key:"a.map" default:"k=v"`
	Number percent           `key:"a.number" default:"5%"`
	Not    int               // not a setting
	Code   func()
	Inner  struct {
		Millis  int64  `key:"b.millis" default:"1m" min:"1s" unit:"ms"`
		Seconds uint32 `key:"b.seconds" default:"30s" min:"1s" unit:"s"`
		Named   string `key:"b.named" kind:"map"`
	} `cluster:"yes"`
}

func row(t *testing.T, holder any, key string) Setting {
	t.Helper()
	for _, s := range Of(holder) {
		if s.Key == key {
			return s
		}
	}
	t.Fatalf("there is no setting %s", key)
	return Setting{}
}

func TestSettingsDefaultsComeFromTheTags(t *testing.T) {
	want := every{
		Bool: true, Text: "x", Word: "b", Int: 2, Uint: 7, Span: time.Second, List: []string{"a", "b"},
		Map: map[string]string{"k": "v"}, Number: 5,
	}
	want.Inner.Millis, want.Inner.Seconds = 60_000, 30
	expect.Deep(t, Default[every](), want, "got")
}

func TestSettingsSetAndStringAreInverse(t *testing.T) {
	for key, tc := range map[string]struct{ kind, text string }{
		"a.bool": {"bool", "false"}, "a.text": {"text", "y"}, "a.int": {"number", "-3"}, "a.uint": {"number", "9"},
		"a.span": {"duration", "1m30s"}, "a.list": {"list", "c,d"}, "a.map": {"map", "a=b,c=d"}, "a.number": {"number", "7%"},
		"b.millis": {"duration", "1.5s"}, "b.seconds": {"duration", "2m0s"}, "b.named": {"map", "z=keep-for:1h"},
	} {
		s := row(t, new(every), key)
		need.OK(t, s.Set(tc.text))
		expect.That(t, s.String() == tc.text && s.Kind() == tc.kind, "%s: got %s %q, want %s %q", key, s.Kind(), s, tc.kind, tc.text)
	}
}

func TestSetRefusesTextsWithWhatWouldBeRight(t *testing.T) {
	for _, tc := range []struct{ key, text, want string }{
		{"a.bool", "maybe", `"maybe" is not true or false`},
		{"a.int", "two", `"two" is not a number such as 2`},
		{"a.uint", "-1", `"-1" is not a number, zero or more`},
		{"a.span", "5", `"5" is not a duration with its unit`},
		{"a.map", "nowhere", `"nowhere" is not of the form name=address`},
		{"b.millis", "1µs", `"1µs" is not a whole number of 1ms`},
		{"b.seconds", "500ms", `"500ms" is not a whole number of 1s`},
		{"b.seconds", "-1s", `"-1s" is out of range`},
		{"b.named", "nowhere", `"nowhere" is not of the form name=address`},
	} {
		h := Default[every]()
		s := row(t, &h, tc.key)
		before := s.String()
		err := s.Set(tc.text)
		expect.That(t, err != nil && strings.Contains(err.Error(), tc.want) && s.String() == before, "%s: got %v and %q, want %q", tc.key, err, s, tc.want)
	}
}

func TestCheckNamesEveryKeyAndItsBound(t *testing.T) {
	h := Default[every]()
	need.OK(t, Check(&h))
	h.Word, h.Int, h.Span, h.Inner.Millis = "c", 4, time.Millisecond, 3
	const want = "a.word: \"c\" is not one of [\"a\" \"b\"]\na.int: 4 is above 3\na.span: 1ms is below 5ms; 0 means never\nb.millis: 3ms is below 1s"
	err := Check(&h)
	expect.That(t, err != nil && err.Error() == want, "got %v, want %s", err, want)
}

func TestFillLeavesAZeroThatMayBeIntended(t *testing.T) {
	var h every
	Fill(&h)
	want := every{Word: "b", Int: 2, Uint: 7}
	want.Inner.Millis, want.Inner.Seconds = 60_000, 30
	expect.Deep(t, h, want, "got")
}

func TestSettingsSayWhatIsAllowedAndWhenItIsReloaded(t *testing.T) {
	var h struct {
		Every every
		Live  int `key:"c.live" reload:"yes" max:"9"`
	}
	for key, want := range map[string][2]string{
		"a.word": {"a, b", ""}, "a.int": {"1 to 3", ""}, "a.span": {"at least 5ms; 0: never", ""},
		"c.live": {"at most 9", "on SIGHUP"}, "a.text": {"", ""}, "b.millis": {"at least 1s", "by the next leader"},
	} {
		if s := row(t, &h, key); s.Limits() != want[0] || s.TakesEffect() != want[1] {
			t.Errorf("%s: got %q and %q, want %q", key, s.Limits(), s.TakesEffect(), want)
		}
	}
}

func TestParseDropsWhiteSpaceAndEmptyElementsOfListsAndMaps(t *testing.T) {
	expect.Deep(t, SplitList(" a ,, b"), []string{"a", "b"}, "got")
	for _, text := range []string{"a", "=b", "a="} {
		m, err := ParseMap(text)
		expect.That(t, err != nil, "%q is read as %v", text, m)
	}
}
