package replication

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// Bounds of what a message may hold, beside those of a registration.
const (
	maxName  = 255                            // bytes of a datacenter's, node's or sender's name
	maxHeard = 1000                           // datacenters that a node tells of
	maxAge   = 10 * 365 * 24 * 60 * 60 * 1000 // ms; no lease clock has run for longer
	maxFor   = maxAge                         // ms that an operator's act may hold
	maxText  = 4096                           // bytes of what an operator said
	maxCount = 1 << 31                        // lives, and edits of one: so many are never reached by counting
)

// checkVersioned checks what all items about an instance have.
func (i *wireItem) checkVersioned() error {
	if err := eureka.CheckApp(i.App); err != nil {
		return err
	}
	if err := eureka.CheckID(i.ID); err != nil {
		return err
	}
	switch {
	case i.App != strings.ToUpper(i.App):
		return fmt.Errorf("app %q must be in upper case", clip(i.App))
	case i.Life == 0 || i.Life > maxCount || i.Edit > maxCount:
		return fmt.Errorf("life %d must be 1 to %d, and edit %d at most that", i.Life, maxCount, i.Edit)
	case !validAge(i.Age):
		return fmt.Errorf("an age of %d ms is not in 0 to %d", i.Age, int64(maxAge))
	case i.Owner != "" && !validName(i.Owner):
		return fmt.Errorf("owner %q must be a name of 1 to %d bytes", clip(i.Owner), maxName)
	}
	return nil
}

// check checks an operator's act. What it says is shown to people.
func (a wireAct) check() error {
	if a.For < 0 || a.For > maxFor {
		return fmt.Errorf("%d ms are not in 0 to %d", a.For, int64(maxFor))
	}
	if len(a.Author) > maxText || len(a.Reason) > maxText {
		return fmt.Errorf("author and reason must be at most %d bytes each", maxText)
	}
	if strings.ContainsFunc(a.Author+a.Reason, unicode.IsControl) {
		return errors.New("author and reason must be without control characters")
	}
	return nil
}

func validName(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, unicode.IsControl)
}

func validAge(age int64) bool { return 0 <= age && age <= maxAge }

// ageToWire is an age that receivers accept.
func ageToWire(age int64) int64 { return min(max(age, 0), maxAge) }

// later is an age that has grown by the time a message is late.
func later(age, late int64) int64 { return min(age+late, maxAge) }

// clip shortens a text for an error.
func clip(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	cut := most
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
