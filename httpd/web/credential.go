package web

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
)

// errUnknownCredential covers both missing tokens and wrong secrets: nobody learns which it was.
var errUnknownCredential = errors.New("the token is not known here: it was revoked, or its secret was exchanged, or it never was")

// credentialOf returns a request's credential, or "". If there are several, they must be equal. The error says what is
// wrong with it, and never repeats it.
func credentialOf(r *http.Request, inQuery bool) (text string, err error) {
	found := func(credential string) {
		switch {
		case credential == "" || text == credential:
		case text != "":
			err = errors.New("two credentials contradict each other: send one (X-Consul-Token or Authorization)")
		default:
			text = credential
		}
	}
	for _, value := range r.Header["X-Consul-Token"] {
		found(value)
	}
	for _, value := range r.Header["Authorization"] {
		credential, wrong := ofAuthorization(value)
		if wrong != nil {
			return "", wrong
		}
		found(credential)
	}
	if strings.Contains(r.URL.RawQuery, "token=") {
		if credential, _, _ := param(r.URL.RawQuery, "token"); access.Looks(credential) {
			if !inQuery {
				return "", errors.New("a token in the URL lands in logs and is not taken (auth.token-in-query): send it as X-Consul-Token or Authorization")
			}
			found(credential)
		}
	}
	if text == "" && err == nil && IsPage(r.URL.Path) {
		if login, missing := r.Cookie(LoginCookie(r)); missing == nil {
			text = login.Value
		}
	}
	return text, err
}

// LoginCookie names the cookie with the token of a dashboard login. It only works on the dashboard's pages: what a
// browser sends on its own must not be a credential for programs' routes. Over TLS its name keeps other hosts and
// plain connections from setting it (RFC 6265bis, 4.1.3.2).
func LoginCookie(r *http.Request) string {
	const name = "rollcall-login"
	if r.TLS != nil {
		return "__Host-" + name
	}
	return name
}

// ofAuthorization returns the token in an Authorization field: a bearer token, or the password of a user of any name,
// which is what clients make of http://user:password@host.
func ofAuthorization(value string) (string, error) {
	scheme, rest, _ := strings.Cut(value, " ")
	switch rest = strings.TrimSpace(rest); {
	case strings.EqualFold(scheme, "Bearer"):
		return rest, nil
	case strings.EqualFold(scheme, "Basic"):
		decoded, err := base64.StdEncoding.DecodeString(rest)
		user, password, colon := strings.Cut(string(decoded), ":")
		switch {
		case err != nil || !colon:
			return "", errors.New("the Authorization field is not a user and a password in base64")
		case password == "" && access.Looks(user): // http://rct_…@host
			return user, nil
		}
		return password, nil
	}
	return "", errors.New("the Authorization field has an unknown scheme; Bearer and Basic are known")
}
