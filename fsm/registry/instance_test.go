package registry

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestEveryStatusHasAWordOfItsOwn(t *testing.T) {
	all := Statuses()
	need.Equal(t, len(all), len(Counts{}), "statuses that are listed")
	for _, s := range all {
		got, ok := ParseStatus(s.String())
		expect.That(t, ok && got == s && s.String() != "", "status %d has the word %q, which is read as %d, %v", s, s, got, ok)
	}
	_, ok := ParseStatus("")
	expect.That(t, !ok && Status(len(all)).String() == "UNKNOWN", "a word that is empty is read as a status, or a status beyond the last is %s", Status(len(all)))
}

// Everything that lists the statuses without calling Statuses.
func TestPagesAndColorsHaveEveryStatus(t *testing.T) {
	words := StatusWords()
	last := len(words) - 1
	texts := map[string]string{
		"docs/architecture.md":        strings.Join(words[:last], ", ") + " and " + words[last],
		"docs/reference/cli.md":       "`" + strings.Join(words[:last], "`, `") + "` or `" + words[last] + "`",
		"docs/reference/openapi.yaml": "Status: {type: string, enum: [" + strings.Join(words, ", ") + "]}",
	}
	var numbers []string
	for s := range Status(statusCount) {
		numbers = append(numbers, fmt.Sprint(byte(s), " ", s))
	}
	texts["docs/reference/formats/log-entry.md"] = "| status | one byte: " + strings.Join(numbers, ", ") + " |"
	for file, text := range texts {
		page := string(need.Got(os.ReadFile("../../" + file))(t))
		expect.That(t, strings.Contains(page, text), "%s lacks %q", file, text)
	}
	const styles = "httpd/dashboard/assets/style.css"
	style := string(need.Got(os.ReadFile("../../" + styles))(t))
	for _, word := range words {
		expect.That(t, regexp.MustCompile(`\.`+word+`[ ,]`).MatchString(style), "%s has no color for %s", styles, word)
	}
}
