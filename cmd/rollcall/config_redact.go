package main

import (
	"net/url"
	"strings"

	"github.com/seed-20419f34/rollcall/internal/setting"
)

// redact returns a text, a list or a map of the settings as it may be shown: without the passwords in its URLs. Nil: it is none of
// them, and may be shown as it is written.
func redact(s setting.Setting) any {
	switch s.Kind() {
	case "text":
		return s.String()
	case "list":
		shown := []string{}
		for _, text := range setting.SplitList(s.String()) {
			shown = append(shown, redactURLs(text))
		}
		return shown
	case "map":
		shown, _ := setting.ParseMap(s.String())
		for name, text := range shown {
			shown[name] = redactURLs(text)
		}
		return shown
	}
	return nil
}

// redactURLs hides the passwords of URLs that are separated by spaces.
func redactURLs(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		if u, err := url.Parse(word); err == nil && u.User != nil {
			words[i] = u.Redacted()
		}
	}
	return strings.Join(words, " ")
}
