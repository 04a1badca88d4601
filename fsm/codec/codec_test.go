package codec

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

type colour uint8

// record has one value of each kind.
type record struct {
	Byte     byte
	Colour   colour
	Yes      bool
	Big      uint64
	Small    uint32
	Signed   int64
	Short    int32
	Int      int
	Text     string
	Lasting  string
	Note     string
	Bytes    []byte
	Texts    []string
	Inner    *record
	Absent   *record
	Elements []*record
	Body     string
}

func (r *record) fields(c *Codec) {
	c.Byte(&r.Byte)
	Enum(c, &r.Colour, 3, "colour")
	c.Bool(&r.Yes)
	c.Uint64(&r.Big)
	c.Uint32(&r.Small)
	c.Int64(&r.Signed)
	c.Int32(&r.Short)
	c.Int(&r.Int)
	c.String(&r.Text)
	c.Lasting(&r.Lasting)
	c.BoundedText(&r.Note, 4)
	c.Bytes(&r.Bytes)
	c.Strings(&r.Texts)
	Optional(c, &r.Inner, (*record).fields)
	Optional(c, &r.Absent, (*record).fields)
	List(c, &r.Elements, 1, Each((*record).fields))
	outer := c.Open()
	c.String(&r.Body)
	c.Close(outer, "body")
}

func example() *record {
	return &record{
		Byte: 7, Colour: 3, Yes: true, Big: math.MaxUint64, Small: math.MaxUint32, Signed: -1, Short: math.MinInt32, Int: math.MaxInt,
		Text: "text", Lasting: "lasting", Note: "note", Bytes: []byte{0, 1}, Texts: []string{"a", ""}, Inner: &record{Text: "inner"},
		Elements: []*record{{}, {Big: 1}}, Body: strings.Repeat("b", 200),
	}
}

func encode(r *record) []byte {
	c := Writer([]byte("before"), Newest)
	c.Version()
	r.fields(&c)
	return c.Written()[len("before"):]
}

func TestARecordIsReadAsItWasWrittenAndCounted(t *testing.T) {
	for name, want := range map[string]*record{"full": example(), "empty": {}} {
		b := encode(want)
		c := Counter(Newest)
		c.Version()
		want.fields(&c)
		expect.That(t, c.Len() == len(b), "%s: %d bytes were counted, want %d", name, c.Len(), len(b))
		for way, c := range map[string]Codec{"reader": Reader(b), "sharing reader": SharingReader(b, Newest)} {
			got := new(record)
			c.Version()
			got.fields(&c)
			expect.That(t, c.End() == nil && reflect.DeepEqual(got, want), "%s by a %s: got %+v, %v, want %+v", name, way, got, c.Err(), want)
		}
	}
}

func TestAReaderRefersToNothingOfItsBuffer(t *testing.T) {
	want, b := example(), encode(example())
	c := SharingReader(b, Newest)
	got := new(record)
	c.Version()
	got.fields(&c)
	clear(b)
	expect.That(t, reflect.DeepEqual(got, want), "got %+v after the buffer was overwritten, want %+v", got, want)
}

func TestAWeigherCountsTextsAlone(t *testing.T) {
	c := Weigher()
	example().fields(&c)
	expect.That(t, c.Len() == len("text")+len("lasting")+len("note")+2+len("a")+len("inner")+200, "got %d", c.Len())
}

func TestBoundedTextIsCutWhereItIsWritten(t *testing.T) {
	r := &record{Note: "too long"}
	b := encode(r)
	expect.That(t, r.Note == "too long", "the note was changed to %q where it was written", r.Note)
	c := Reader(b)
	got := new(record)
	c.Version()
	got.fields(&c)
	expect.That(t, c.End() == nil && got.Note == "too ", "got %q, %v", got.Note, c.Err())
}

func TestAReaderRefusesEveryBeginningOfARecord(t *testing.T) {
	b := encode(example())
	for n := range b {
		c := Reader(b[:n])
		c.Version()
		new(record).fields(&c)
		need.That(t, errors.Is(c.End(), ErrCorrupt), "%d of %d bytes: %v, want ErrCorrupt", n, len(b), c.Err())
	}
}

func TestAReaderRefusesWhatNoWriterWrites(t *testing.T) {
	number := func(v uint64) []byte { return binary.AppendUvarint(nil, v) }
	for _, tc := range []struct {
		name string
		b    []byte
		read func(*Codec)
		want string
	}{
		{"nothing", nil, func(c *Codec) { c.Byte(new(byte)) }, "ends too early"},
		{"what is left", []byte{1, 2}, func(c *Codec) { c.Byte(new(byte)) }, "1 bytes too many"},
		{"enumeration", []byte{4}, func(c *Codec) { Enum(c, new(colour), 3, "colour") }, "colour 4, want at most 3"},
		{"truth value", []byte{2}, func(c *Codec) { c.Bool(new(bool)) }, "truth value 2"},
		{"number that never ends", []byte(strings.Repeat("\xff", 11)), func(c *Codec) { c.Uint64(new(uint64)) }, "64 bits"},
		{"number that is cut short", []byte{0x80}, func(c *Codec) { c.Uint64(new(uint64)) }, "cut short"},
		{"number with needless bytes", []byte{0x80, 0}, func(c *Codec) { c.Uint64(new(uint64)) }, "needless"},
		{"32 bits", number(1 << 32), func(c *Codec) { c.Uint32(new(uint32)) }, "32 bits"},
		{"32 bits, signed", number(1 << 32), func(c *Codec) { c.Int32(new(int32)) }, "32 bits"},
		{"int", number(1 << 63), func(c *Codec) { c.Int(new(int)) }, "out of range"},
		{"length", []byte{5, 'a'}, func(c *Codec) { c.String(new(string)) }, "5 elements announced, 1 bytes left"},
		{"length beyond memory", number(math.MaxUint64), func(c *Codec) { c.Bytes(new([]byte)) }, "announced"},
		{"list", []byte{2, 0, 0, 0}, func(c *Codec) { List(c, new([]byte), 2, func(b *byte, c *Codec) { c.Byte(b) }) }, "2 elements announced"},
		{"note", []byte("\x05abcde"), func(c *Codec) { c.BoundedText(new(string), 4) }, "5 bytes, want at most 4"},
		{"mask", []byte{8}, func(c *Codec) { c.Mask(0, 3, "thing") }, "thing of unknown form 0x8"},
		{"body with bytes left", []byte{2, 0, 0}, func(c *Codec) {
			outer := c.Open()
			c.Byte(new(byte))
			c.Close(outer, "thing")
		}, "thing that ends at byte 3: corrupt at byte 1: 1 bytes too many"},
		{"level 0", []byte{0}, func(c *Codec) { c.Version() }, "level 0"},
	} {
		c := Reader(tc.b)
		tc.read(&c)
		err := c.End()
		expect.That(t, errors.Is(err, ErrCorrupt) && strings.Contains(err.Error(), tc.want),
			"%s: got %v, want ErrCorrupt that says %q", tc.name, err, tc.want)
	}
}

func TestAReaderDoesNotCallANewerLevelCorrupt(t *testing.T) {
	c := Reader([]byte{Newest + 1, 99})
	c.Version()
	err := c.End()
	expect.That(t, errors.Is(err, ErrNewerVersion) && !errors.Is(err, ErrCorrupt), "got %v, want ErrNewerVersion", err)
}

func TestAFieldIsThereFromItsLevelOn(t *testing.T) {
	for level, want := range map[byte]bool{1: false, 2: true, 3: true} {
		c := Writer(nil, level)
		expect.Equal(t, c.Since(2, false), want, "level %d: a field since level 2 is there:", level)
	}
}

// A record needs the level of its highest field that is set, wherever that is in the record.
func TestARecordNeedsTheLevelOfWhatItHas(t *testing.T) {
	type inner struct{ Later string }
	type record struct {
		Text   string
		Inners []inner
		Last   int64
	}
	fields := func(r *record, c *Codec) {
		c.String(&r.Text)
		List(c, &r.Inners, 1, func(i *inner, c *Codec) {
			outer := c.Open()
			if c.Since(2, i.Later != "") {
				c.String(&i.Later)
			}
			c.Close(outer, "inner")
		})
		if c.Since(3, r.Last != 0) {
			c.Int64(&r.Last)
		}
	}
	for name, tc := range map[string]struct {
		record record
		want   byte
	}{
		"nothing new":       {record{Text: "t", Inners: []inner{{}}}, Oldest},
		"in an element":     {record{Inners: []inner{{}, {Later: "x"}}}, 2},
		"at the end":        {record{Last: -1}, 3},
		"both, the highest": {record{Inners: []inner{{Later: "x"}}, Last: 1}, 3},
	} {
		c := Needer()
		fields(&tc.record, &c)
		expect.That(t, c.Need() == tc.want && c.Err() == nil, "%s: needs level %d (%v), want %d", name, c.Need(), c.Err(), tc.want)
	}
}
