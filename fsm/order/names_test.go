package order

import (
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestWhichCharactersNamesMayHave(t *testing.T) {
	for _, c := range []struct {
		name         string
		valid, hides bool
	}{
		{"orders-1.example:8080/a b", true, false}, {"Grüße-東京-☃", true, false}, {strings.Repeat("x", MaxName), true, false},
		{"", false, false}, {".", false, false}, {"..", false, false}, {strings.Repeat("x", MaxName+1), false, false}, {"a\xff", false, false},
		{"a\x00", false, false}, {"a\n", false, false}, {"a\x7f", false, false}, {"a\u0085", false, false},
	} {
		expect.That(t, ValidName(c.name) == c.valid && HasInvisible(c.name) == c.hides, "%q is valid: %v, hides: %v", c.name, ValidName(c.name), HasInvisible(c.name))
	}
	for _, span := range [][2]rune{
		{0x202a, 0x202e}, {0x2066, 0x2069}, {0x200e, 0x200f}, {0x061c, 0x061c}, {0x200b, 0x200d}, {0x2060, 0x2064}, {0xfeff, 0xfeff},
		{0x00ad, 0x00ad}, {0x2028, 0x2029}, {0xe0020, 0xe007f},
		{0x034f, 0x034f}, {0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x3164, 0x3164}, {0xfe00, 0xfe0f}, {0xffa0, 0xffa0}, {0xe0100, 0xe01ef},
	} {
		for r := span[0]; r <= span[1]; r++ {
			name := "a" + string(r)
			expect.That(t, ValidName(name) && HasInvisible(name), "%q is valid: %v, hides: %v", name, ValidName(name), HasInvisible(name))
		}
	}
}
