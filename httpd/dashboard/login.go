package dashboard

import (
	"net/http"
	"net/url"
	"strings"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/httpd/web"
)

// loginPage is GET /ui/login.
func (c call) loginPage() (any, error) {
	next := c.Text("next")
	if c.Err != nil {
		return nil, c.Err
	}
	return c.render(http.StatusOK, c.loginForm(local(next), "", nil))
}

// carried is the prefix of an act's form fields while a login carries them: in a URL, logs would keep them.
const carried = "form."

// carriedForm is the field that asks to show a form carried through a login, and to do nothing yet.
const carriedForm = "carried"

// loginForm asks for a token, and leads to next. f holds the fields of a form that was sent there without a good
// login, or nil.
func (d *Dashboard) loginForm(next, wrong string, f url.Values) g.Node {
	return bare("Log in", el("section", class("narrow"),
		el("h1", text("Log in to "+d.Name)),
		g.If(wrong != "", el("p", class("wrong"), attr("role", "alert"), text(sentence(upperFirst(wrong))))),
		el("form", attr("method", "post"), attr("action", "/ui/login"),
			hidden("next", next), hiddenFields(carried, f),
			el("label", text("Token"), el("input", attr("type", "password"), attr("name", "token"), attr("required"), attr("autofocus"), attr("autocomplete", "current-password"))),
			el("button", class("primary"), text("Log in"))),
		el("p", class("soft"), text("An operator makes one with "), code("rollcall token create"), text(". The browser keeps it until it is closed; it is good until the token ends."))))
}

// login is POST /ui/login: the token goes into a cookie that no script can read. Browsers send it to every port of
// this host; here it only works on the pages.
func (c call) login() (any, error) {
	form := c.fields(2 * maxForm) // including an act's form
	if c.Err != nil {
		return nil, c.Err
	}
	token, next := strings.TrimSpace(form.Get("token")), local(form.Get("next"))
	f := url.Values{}
	for name, values := range form {
		if own, is := strings.CutPrefix(name, carried); is {
			f[own] = values
		}
	}
	if err := c.LogIn(token); err != nil {
		refused := web.RefusalOf(err)
		return c.render(refused.Status, c.loginForm(next, refused.Text, f))
	}
	http.SetCookie(c.W, c.cookie(token))
	if len(f) > 0 {
		f.Set(carriedForm, "1")
		return c.render(http.StatusOK, bare("Logged in", el("section", class("narrow"), el("h1", text("You are logged in")), el("p", text("Nothing was done yet. What you wrote is kept.")),
			el("form", attr("method", "post"), attr("action", next), hiddenFields("", f), el("button", class("primary"), attr("autofocus"), text("Back to the form"))))))
	}
	return c.redirect(next)
}

// logout is POST /ui/logout.
func (c call) logout() (any, error) {
	if c.IgnoreBody(); c.Err != nil {
		return nil, c.Err
	}
	gone := c.cookie("")
	gone.MaxAge = -1
	http.SetCookie(c.W, gone)
	return c.redirect("/ui/login")
}

// cookie returns the cookie of a login with a token. It has no expiry of its own: the browser forgets it when it is
// closed, and the server goes by the token's expiry.
func (c call) cookie(token string) *http.Cookie {
	return &http.Cookie{Name: web.LoginCookie(c.R), Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.R.TLS != nil}
}
