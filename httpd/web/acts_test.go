package web

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// An act that is not in the list is counted from 1 on, which no rate shows.
func TestActsThatAreRecordedAreCountedFromTheBeginning(t *testing.T) {
	named := regexp.MustCompile(`(?:\.Did\(|\badd\(|\bdoes :?= )"([a-z_]+)"`)
	files := append(need.Got(filepath.Glob("../ownroutes/*.go"))(t), "audit.go")
	found := 0
	for _, file := range files {
		for _, m := range named.FindAllStringSubmatch(string(need.Got(os.ReadFile(file))(t)), -1) {
			found++
			expect.That(t, slices.Contains(acts, m[1]) || strings.HasPrefix(m[1], "catalog_"), "%s records the act %s, which acts lacks", file, m[1])
		}
	}
	need.That(t, found > 15, "%d acts were found", found)
}
