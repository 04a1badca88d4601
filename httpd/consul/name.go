package consul

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName bounds the names of services, nodes and checks and their ids, in bytes: those of services are
// names of applications and ids of instances, too.
const maxName = 255

// checkName says what is wrong with a name that is to be kept, nil if nothing is.
func checkName(what, name string) error {
	if name == "" || len(name) > maxName || len(strings.ToUpper(name)) > maxName || name == "." || name == ".." ||
		!utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return malformed(`Invalid %s, it must be 1 to %d bytes of UTF-8 without control characters, and neither "." nor ".."`, what, maxName)
	}
	return nil
}
