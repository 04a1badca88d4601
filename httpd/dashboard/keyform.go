package dashboard

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// mostEdited bounds the bytes of a value that a form edits.
const mostEdited = 16 << 10

// editable says whether a form can carry a value and give it back as it is.
func editable(value []byte) bool {
	return len(value) <= mostEdited && utf8.Valid(value) && !strings.ContainsFunc(string(value), func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' })
}

// valueField edits the value of a key, as of the index that it had when the page was made.
func valueField(c call, _ *registry.View, f url.Values) g.Node {
	value, index := f.Get("value"), f.Get("cas")
	if !f.Has("cas") {
		if pair := c.pair(f.Get("key")); pair != nil && editable(pair.Value) {
			value, index = string(pair.Value), strconv.FormatUint(uint64(pair.ModifyIndex), 10)
		} else {
			index = "0"
		}
	}
	return g.Group{
		el("input", attr("type", "hidden"), attr("name", "cas"), attr("value", index)),
		// HTML drops the first line end of a text area.
		el("label", g.Textf("Value, in place of that of index %s", index), el("textarea", attr("name", "value"), attr("rows", "12"), verbatim("\n"+value))),
	}
}

// pair is a key as this node has it; nil: there is none, or the caller may not read it.
func (c call) pair(name string) *kv.Pair {
	if c.Coordination == nil || !c.May(access.Need{Resource: access.KV, Name: name, Verb: access.Read}) {
		return nil
	}
	k, err := c.Coordination.View(c.R.Context(), registry.Stale)
	if err != nil {
		return nil
	}
	pair, _ := k.Get(name)
	return pair
}

// overtaken is the form of a key that was changed by another meanwhile: it keeps what the reader wrote, and is based on the new
// index from now on.
func (c call) overtaken(f url.Values) (url.Values, string) {
	now, value := "0", "it is gone"
	if pair := c.pair(f.Get("key")); pair != nil {
		now = strconv.FormatUint(uint64(pair.ModifyIndex), 10)
		value = "its value is now: " + strings.ToValidUTF8(string(pair.Value[:min(len(pair.Value), 1000)]), "�")
	}
	f.Set("cas", now)
	return f, fmt.Sprintf("somebody changed it to index %s meanwhile; %s. What you wrote is below, and replaces that if you send it again", now, value)
}
