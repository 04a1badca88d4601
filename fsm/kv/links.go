package kv

import (
	"cmp"
	"iter"
	"strings"

	"github.com/tidwall/btree"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// links say which sessions end with which check, and (check "") with which node. They are derived from
// the sessions, and so no part of a snapshot.
type links struct{ tree *btree.BTreeG[link] }

type link struct {
	ref     CheckRef
	session string
}

func newLinks() links { return links{order.NewTree(compareLinks)} }

func compareLinks(a, b link) int {
	return cmp.Or(strings.Compare(a.ref.Node, b.ref.Node), strings.Compare(a.ref.ID, b.ref.ID), strings.Compare(a.session, b.session))
}

func (l links) add(s *Session) {
	for ref := range s.refs() {
		l.tree.Set(link{ref, s.ID})
	}
}

func (l links) remove(s *Session) {
	for ref := range s.refs() {
		l.tree.Delete(link{ref, s.ID})
	}
}

// of yields the ids of the sessions that end with a check or node.
func (l links) of(ref CheckRef) iter.Seq[string] {
	return func(yield func(string) bool) {
		l.tree.Ascend(link{ref: ref}, func(l link) bool { return l.ref == ref && yield(l.session) })
	}
}

// refs yields what a session ends with.
func (s *Session) refs() iter.Seq[CheckRef] {
	return func(yield func(CheckRef) bool) {
		if !yield(CheckRef{Node: s.Node}) {
			return
		}
		for _, list := range [][]string{s.NodeChecks, s.ServiceChecks} {
			for _, id := range list {
				if !yield(CheckRef{Node: s.Node, ID: id}) {
					return
				}
			}
		}
	}
}
