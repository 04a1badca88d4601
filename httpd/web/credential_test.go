package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// FuzzCredential reads credentials from whatever headers and query there are: one that is found stands in the request, and no
// error repeats it.
func FuzzCredential(f *testing.F) {
	f.Add("", "Basic b3JkZXJzOnJjdF94", "", "token=rct_x", true)
	f.Add("rct_x", "Bearer rct_x", "bearer rct_y", "", false)
	f.Add("\xff", "Basic ?", "Negotiate", "token=%zz&token=rct_x", true)
	f.Fuzz(func(t *testing.T, token, first, second, query string, inQuery bool) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.RawQuery = query
		r.Header["X-Consul-Token"] = []string{token}
		r.Header["Authorization"] = []string{first, second}
		text, err := credentialOf(r, inQuery)
		if err != nil {
			expect.That(t, len(token) < 24 || !strings.Contains(err.Error(), token), "the error repeats %q: %v", token, err)
			return
		}
		again, err := credentialOf(r, inQuery)
		expect.That(t, err == nil && again == text, "got %q, and again %q, %v", text, again, err)
		expect.That(t, token == "" || text == token, "got %q, and the header has %q", text, token)
		if text == "" {
			return
		}
		r.Header["X-Consul-Token"] = []string{text + "a"}
		_, err = credentialOf(r, inQuery)
		expect.That(t, token != "" || err != nil, "beside another one %q is taken", text)
	})
}

// TestLoginCookieOverTLSIsOfThisHostAlone: browsers keep its name from others (RFC 6265bis, 4.1.3.2).
func TestLoginCookieOverTLSIsOfThisHostAlone(t *testing.T) {
	for from, want := range map[string]string{"http://node/": "rollcall-login", "https://node/": "__Host-rollcall-login"} {
		expect.Equal(t, LoginCookie(httptest.NewRequest(http.MethodGet, from, nil)), want, "the cookie of a login at %s:", from)
	}
}
