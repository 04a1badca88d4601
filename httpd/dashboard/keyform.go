package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// mostEdited bounds the bytes of a value that a form edits.
const mostEdited = 16 << 10

// editable reports whether a form can carry a value and return it unchanged.
func editable(value []byte) bool {
	return len(value) <= mostEdited && utf8.Valid(value) && !strings.ContainsFunc(string(value), func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' })
}

// openKey fills the current state of a key into a fresh form: its value, its index, and its flags, which a write
// replaces too.
func openKey(c call, f url.Values) error {
	for _, name := range []string{"value", "cas", "flags"} {
		f.Del(name)
	}
	pair := c.pair(f.Get("key"))
	baseOn(f, pair)
	if pair == nil {
		return nil
	}
	f.Set("value", string(pair.Value))
	return checkKey(c, f)
}

// checkKey refuses to edit a key whose value the form cannot have shown, or would return changed.
func checkKey(c call, f url.Values) error {
	if pair := c.pair(f.Get("key")); pair != nil && !editable(pair.Value) {
		return &web.Refusal{Status: http.StatusUnprocessableEntity, Text: fmt.Sprintf("a form cannot edit this key: its value is not text, or longer than %d bytes; rollcall kv put can write it", mostEdited)}
	}
	return nil
}

// baseOn makes a form replace the key's state in pair; nil if the key does not exist.
func baseOn(f url.Values, pair *kv.Pair) {
	f.Set("cas", "0")
	f.Del("flags")
	if pair == nil {
		return
	}
	f.Set("cas", strconv.FormatUint(uint64(pair.ModifyIndex), 10))
	if pair.Flags != 0 {
		f.Set("flags", strconv.FormatUint(pair.Flags, 10))
	}
}

// valueOf returns the value that a form sent. Browsers send a text area's line ends as CR LF, whatever they were.
func valueOf(f url.Values) string { return strings.ReplaceAll(f.Get("value"), "\r\n", "\n") }

// keyQuery returns the parameters of the call that writes a key. Without cas it would write whatever the key has now.
func keyQuery(f url.Values) url.Values {
	query := url.Values{"cas": {f.Get("cas")}}
	setGiven(query, "flags", f.Get("flags"))
	return query
}

// keyCommand completes the command for what the form would write. It reads its value from standard input if its
// argument would mean something else.
func keyCommand(f url.Values, k command) command {
	value := valueOf(f)
	k.flags = []string{"--cas", f.Get("cas")}
	if f.Get("flags") != "" {
		k.flags = append(k.flags, "--flags", f.Get("flags"))
	}
	if strings.HasPrefix(value, "@") || strings.HasPrefix(value, "-") {
		k.input, value = "printf %s "+quoted(value)+" | ", "-"
	}
	k.names = append(k.names, value)
	return k
}

// valueField edits the value of a key, as of the index that it had when the form was opened.
func valueField(_ call, _ *registry.View, f url.Values) g.Node {
	return g.Group{g.If(f.Get("cas") != "", hidden("cas", f.Get("cas"))), g.If(f.Get("flags") != "", hidden("flags", f.Get("flags"))),
		// HTML drops the first line end of a text area.
		el("label", g.Textf("Value, in place of that of index %s", f.Get("cas")), el("textarea", attr("name", "value"), attr("rows", "12"), verbatim("\n"+f.Get("value")))),
	}
}

// keys returns sessions and keys: what this node has, or, after an act, at least what the act did.
func (c call) keys(afterAct bool) (*kv.View, error) {
	if afterAct && c.Service.Health().Quorum {
		if k, err := c.Coordination.View(c.R.Context(), registry.Linearizable); err == nil {
			return k, nil
		}
	}
	return c.Coordination.View(c.R.Context(), registry.Stale)
}

// pair returns a key's current state, or nil if it does not exist or the caller may not read it.
func (c call) pair(name string) *kv.Pair {
	if c.Coordination == nil || !c.May(access.Need{Resource: access.KV, Name: name, Verb: access.Read}) {
		return nil
	}
	k, err := c.keys(true)
	if err != nil {
		return nil
	}
	pair, _ := k.Get(name)
	return pair
}

// overtaken returns the form of a key that somebody else changed meanwhile: it keeps what the reader wrote, and is
// based on the new index from now on. If the key already is as the reader wants it, as after a write of unknown
// outcome, the act is done.
func (c call) overtaken(a *act, f url.Values) (any, error) {
	pair, value := c.pair(f.Get("key")), "it is gone"
	flags := f.Get("flags")
	baseOn(f, pair)
	if pair != nil {
		if string(pair.Value) == valueOf(f) && flags == f.Get("flags") {
			return c.done(a, f, "")
		}
		value = "its value is now: " + strings.ToValidUTF8(order.CutText(string(pair.Value), 1000), "�")
	}
	return c.showForm(a, f, http.StatusConflict, fmt.Sprintf("another program or person changed it to index %s meanwhile; %s. What you wrote is below, and replaces that if you send it again", f.Get("cas"), value))
}
