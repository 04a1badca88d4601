package transport

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestServerURLSaysWhereEurekaAndRollcallAre(t *testing.T) {
	for _, tc := range []struct{ given, own, eureka string }{
		{"http://a:8761", "http://a:8761", "http://a:8761/eureka"},
		{"http://a:8761/", "http://a:8761", "http://a:8761/eureka"},
		{"HTTPS://a", "https://a", "https://a/eureka"},
		{"http://[::1]:8761", "http://[::1]:8761", "http://[::1]:8761/eureka"},
		{"http://a/eureka", "http://a", "http://a/eureka"},
		{"http://a/eureka/", "http://a", "http://a/eureka"},
		{"http://a/eureka//", "http://a", "http://a/eureka"},
		{"http://a/eureka/v1", "http://a", "http://a/eureka/v1"},
		{"http://a/eureka/v2/", "http://a", "http://a/eureka/v2"},
		{"http://a/v2", "http://a", "http://a/v2"},
		{"http://a/discovery", "http://a/discovery", "http://a/discovery/eureka"},
		{"http://a/discovery/eureka/v2", "http://a/discovery", "http://a/discovery/eureka/v2"},
		{"http://a/discovery/v2", "http://a/discovery", "http://a/discovery/v2"},
		{"http://a/myeureka", "http://a/myeureka", "http://a/myeureka/eureka"},
		{"http://a/eureka/v3", "http://a/eureka/v3", "http://a/eureka/v3/eureka"},
		{"http://a/with%2Fslash", "http://a/with%2Fslash", "http://a/with%2Fslash/eureka"},
		{"http://user:pass@a/eureka", "http://a", "http://a/eureka"},
	} {
		s, err := parseServer(tc.given)
		if err != nil {
			t.Errorf("%s: %v", tc.given, err)
			continue
		}
		expect.That(t, s.URL == tc.own && s.eureka == tc.eureka, "%s: own %s, Eureka's %s, want %s and %s", tc.given, s.URL, s.eureka, tc.own, tc.eureka)
	}
}

func TestServerURLsUserAndPasswordAreSentAndNotShown(t *testing.T) {
	for _, tc := range []struct{ given, user, password string }{
		{"http://user:pass@a", "user", "pass"},
		{"http://user:a:colon@a", "user", "a:colon"}, // where Spring's clients send nothing at all
		{"http://user:p%40ss%2Fw%23rd@a", "user", "p@ss/w#rd"},
		{"http://user@a", "user", ""},
	} {
		s, err := parseServer(tc.given)
		if err != nil {
			t.Errorf("%s: %v", tc.given, err)
			continue
		}
		r := &http.Request{Header: make(http.Header)}
		expect.OK(t, s.sign(r, nil))
		user, password, _ := r.BasicAuth()
		expect.That(t, user == tc.user && password == tc.password,
			"%s: signed as %s with %s, want %s with %s", tc.given, user, password, tc.user, tc.password)
		expect.That(t, s.URL == "http://a" && s.eureka == "http://a/eureka", "%s is called %s and %s, want no user in either", tc.given, s.URL, s.eureka)
	}
}

func TestServerURLThatIsNoneIsReportedWithoutUserAndPassword(t *testing.T) {
	for given, shown := range map[string]string{
		"127.0.0.1:8761":              `"127.0.0.1:8761" is not a URL such as`,
		"ftp://a":                     `"ftp://a" is not a URL such as`,
		"http://":                     `"http://" is not a URL such as`,
		"http://a?x=1":                `"http://a?x=1" has a query or a fragment`,
		"http://a?":                   `"http://a?" has a query or a fragment`,
		"http://a/#top":               `"http://a/#top" has a query or a fragment`,
		"http://a#":                   `"http://a#" has a query or a fragment`,
		"ftp://user:secret@a":         `"ftp://…@a" is not a URL such as`,
		"http://user:secret@a?x=1":    `"http://…@a?x=1" has a query`,
		"http://user:sec#ret@a":       `"http://…@a" is not a URL such as`,
		"http://user:sec%ret@a":       `"http://…@a" is not a URL such as`,
		"user:secret@a":               `"…@a" is not a URL such as`,
		"user:sec://ret@a":            `"…@a" is not a URL such as`,
		"http://user:secret@a?x=y@z":  `"http://…@z" has a query`,
		"http://user:secret@a:port/x": `"http://…@a:port/x" is not a URL such as`,
		"unix:":                       `"unix:" names no socket`,
	} {
		_, err := parseServer(given)
		expect.That(t, err != nil && strings.Contains(err.Error(), shown), "%s: %v, want …%s…", given, err, shown)
		if err != nil && (strings.Contains(err.Error(), "sec") || strings.Contains(err.Error(), "user")) {
			t.Errorf("%s: %v shows user or password", given, err)
		}
	}
}

func FuzzServerURL(f *testing.F) {
	for _, text := range []string{
		"http://a:8761", "https://user:pass@a/x/eureka/v2/", "http://a?x", "user:pass@a", "http://[::1]:1/v2", "http://u:p@a%zz", "http://a/%2F//eureka/", "unix:/x/admin.sock", "unix://", "",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseServer(text)
		if err != nil {
			if at := strings.LastIndexByte(text, '@'); at > 0 {
				if _, hidden, _ := strings.Cut(text[:at], "://"); len(hidden) > 3 && !strings.Contains("server … is not a URL such as http://127.0.0.1:8761 has a query or a fragment; give scheme, host and path only"+text[at:], hidden) && strings.Contains(err.Error(), hidden) {
					t.Errorf("%q: %v shows what stands before the host", text, err)
				}
			}
			return
		}
		for _, shown := range []string{s.URL, s.eureka} {
			again, err := parseServer(shown)
			switch {
			case err != nil:
				t.Errorf("%q became %q, which is not taken: %v", text, shown, err)
			case again.auth != nil:
				t.Errorf("%q became %q, which has a user", text, shown)
			}
			expect.That(t, !strings.HasSuffix(shown, "/"), "%q became %q, which ends in a slash", text, shown)
		}
		if again, _ := parseServer(s.eureka); again != nil && again.eureka != s.eureka {
			t.Errorf("%q: Eureka's base %q is taken for one of %q", text, s.eureka, again.eureka)
		}
		expect.OKf(t, expect.Err(http.NewRequest(http.MethodGet, s.eureka+"/apps", nil)), "%q", text)
	})
}
