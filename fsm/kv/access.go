package kv

import (
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Access changes who may do what. Result.Refusal says why nothing was changed.
type Access struct{ access.Change }

func (Access) kind() byte { return 15 }

func (op Access) fields(c *codec.Codec) Access {
	op.Change.Fields(c)
	return op
}

func (op Access) apply(s *State, at At) Result {
	next, refusal := s.access.Apply(&op.Change, at.Index, at.Wall)
	if refusal != "" {
		return Result{Refusal: refusal}
	}
	s.access = next
	s.change(at, Topic{Kind: AccessTopic})
	return Result{OK: true}
}

// GrantTakeover lets peers go on as before level 3 of the formats, which demands that right. It returns the roles
// that changed; if any did, it has taken at.Index.
func (s *State) GrantTakeover(at At) (roles []string) {
	next, roles := s.access.GrantTakeover(at.Index)
	if roles != nil {
		s.access = next
		s.change(at, Topic{Kind: AccessTopic})
	}
	return roles
}

// Access returns who may do what after the newest operation. It is never nil.
func (s *State) Access() *access.Table { return s.access }

// Access returns who may do what. It is never nil.
func (v *View) Access() *access.Table { return v.shown.access }
