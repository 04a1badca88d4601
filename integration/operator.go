package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Preservation is what GET /v1/rollcall/self-preservation says, as far as tests look at it.
type Preservation struct {
	State        string // off, on, released or held
	Reason       string
	Until        int64 // ms since the epoch; 0: no time
	Author, Note string
	Withheld     int // evictions
	Figures      PreservationFigures
	Applications []OverdueApp
	Transitions  []Transition // newest first
	Upstream     struct {
		Decides   bool
		Clients   int `json:"expected_clients"`
		Threshold int
		Allows    bool `json:"allows_eviction"`
	}
}

// PreservationFigures are the numbers of self-preservation.
type PreservationFigures struct{ Leases, Counted, Fresh, Expired int }

// OverdueApp is one application's part of Preservation.
type OverdueApp struct {
	App     string
	Overdue []struct{ ID string }
}

// Transition is a change of self-preservation's state.
type Transition struct{ State, Author, Reason string }

// Explanation is what GET /v1/rollcall/apps/{app}/{id}/explain says, as far as tests look at it.
type Explanation struct {
	State            string // listed, quarantined or gone
	Summary          string
	Status, Reported string
	ExpiresIn        int64 `json:"expires_in_ms"`
	Expired          bool
	Override         *OperatorsAct
	Quarantine       *OperatorsAct
	Removed          *struct{ Kind string }
	SelfPreservation struct {
		State     string
		Withholds bool
	} `json:"self_preservation"`
	History []HistoryEvent // oldest first
}

// OperatorsAct is an override or a quarantine: who set it, and when it ends (ms since the epoch).
type OperatorsAct struct {
	Author, Reason string
	Until          int64
}

// HistoryEvent is something that happened to an instance.
type HistoryEvent struct {
	At             int64 // ms since the epoch
	What, Text     string
	Times          int
	Author, Reason string
}

// Preservation asks the node about self-preservation.
func (n *Node) Preservation() (Preservation, error) {
	return ask[Preservation](n, "/v1/rollcall/self-preservation")
}

// Release ends self-preservation, as an operator does.
func (n *Node) Release(author, reason string) Answer {
	return n.Do(Request{Method: http.MethodPost, Path: "/v1/rollcall/self-preservation/release?" + signed(author, reason)})
}

// Explain asks the node what it knows of an instance; nil without an error means that the node says 404.
func (n *Node) Explain(app, id string) (*Explanation, error) {
	path := ownPath(app, id) + "/explain"
	answer := n.Get(path)
	if answer.Status == http.StatusNotFound {
		return nil, nil
	}
	explanation, err := decoded[Explanation](n, path, answer)
	return &explanation, err
}

// OverrideFor forces a status for a time.
func (n *Node) OverrideFor(app, id, status string, d time.Duration, author, reason string) Answer {
	return n.Do(Request{Method: http.MethodPut, Path: fmt.Sprintf("%s/override?value=%s&for=%v&%s", ownPath(app, id), status, d, signed(author, reason))})
}

// Quarantine hides an instance for a time.
func (n *Node) Quarantine(app, id string, d time.Duration, author, reason string) Answer {
	return n.Do(Request{Method: http.MethodPut, Path: fmt.Sprintf("%s/quarantine?for=%v&%s", ownPath(app, id), d, signed(author, reason))})
}

// ownPath is the resource of an instance in Rollcall's own API.
func ownPath(app, id string) string {
	return "/v1/rollcall/apps/" + url.PathEscape(strings.ToUpper(app)) + "/" + url.PathEscape(id)
}

func signed(author, reason string) string {
	return url.Values{"author": {author}, "reason": {reason}}.Encode()
}

// ask decodes the answer to a GET of one of Rollcall's own resources.
func ask[T any](n *Node, path string) (T, error) { return decoded[T](n, path, n.Get(path)) }

func decoded[T any](n *Node, path string, answer Answer) (document T, err error) {
	if answer.Status != http.StatusOK {
		return document, answer.failure(n, path)
	}
	if err := json.Unmarshal(answer.Body, &document); err != nil {
		return document, fmt.Errorf("node %s: %s: %w", n.Name, path, err)
	}
	return document, nil
}
