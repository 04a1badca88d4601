package main

import (
	"net/url"
	"strings"
)

// redact returns a value of Config as it may be shown: without the passwords in its URLs.
func redact(value any) any {
	switch v := value.(type) {
	case []string:
		shown := make([]string, len(v))
		for i, text := range v {
			shown[i] = redactURLs(text)
		}
		return shown
	case map[string]string:
		shown := make(map[string]string, len(v))
		for name, text := range v {
			shown[name] = redactURLs(text)
		}
		return shown
	}
	return value
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
