package dashboard

import (
	"net/http"
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
	return c.render(c.loginForm(local(next), ""))
}

// loginForm asks for a token, and leads to next.
func (d *Dashboard) loginForm(next, wrong string) g.Node {
	return bare("Log in", el("section", class("narrow"),
		el("h1", text("Log in to "+d.Name)),
		g.If(wrong != "", el("p", class("wrong"), attr("role", "alert"), text(sentence(upperFirst(wrong))))),
		el("form", attr("method", "post"), attr("action", "/ui/login"),
			el("input", attr("type", "hidden"), attr("name", "next"), attr("value", next)),
			el("label", text("Token"), el("input", attr("type", "password"), attr("name", "token"), attr("required"), attr("autofocus"), attr("autocomplete", "current-password"))),
			el("button", class("primary"), text("Log in"))),
		el("p", class("soft"), text("An operator makes one with "), code("rollcall token create"), text(". The browser keeps it until it is closed; it is good until the token ends."))))
}

// login is POST /ui/login: the token goes into a cookie that no script reads. Browsers send it to every port of this host;
// here it counts for the pages only.
func (c call) login() (any, error) {
	form := c.fields()
	if c.Err != nil {
		return nil, c.Err
	}
	token, next := strings.TrimSpace(form.Get("token")), local(form.Get("next"))
	if err := c.LogIn(token); err != nil {
		refused := web.RefusalOf(err)
		renderWith(c.W, c.R, refused.Status, c.loginForm(next, refused.Text))
		return web.Sent, nil
	}
	http.SetCookie(c.W, c.cookie(token))
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

// cookie is that of a login with a token. It has no end of its own: the browser forgets it when it is closed, and the token's end
// counts at the server.
func (c call) cookie(token string) *http.Cookie {
	return &http.Cookie{Name: web.LoginCookie(c.R), Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.R.TLS != nil}
}
