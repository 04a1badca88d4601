package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Status asks the node for its view of the cluster.
func (n *Node) Status() (api.Status, error) { return ask[api.Status](n, "/v1/rollcall/status") }

// Peers asks the node for its peers.
func (n *Node) Peers() (api.Peers, error) { return ask[api.Peers](n, "/v1/rollcall/peers") }

// Peer asks the node for one peer.
func (n *Node) Peer(name string) (api.Peer, error) {
	all, err := n.Peers()
	if err != nil {
		return api.Peer{}, err
	}
	for _, p := range all.Peers {
		if p.Name == name {
			return p, nil
		}
	}
	return api.Peer{}, fmt.Errorf("node %s has no peer %q", n.Name, name)
}

// DiffWith asks the node what differs between it and a peer.
func (n *Node) DiffWith(peer string) (api.PeerDiff, error) {
	return ask[api.PeerDiff](n, "/v1/rollcall/peers/"+peer+"/diff")
}

// Preservation asks the node about self-preservation.
func (n *Node) Preservation() (api.SelfPreservation, error) {
	return ask[api.SelfPreservation](n, "/v1/rollcall/self-preservation")
}

// Release ends self-preservation, as an operator does.
func (n *Node) Release(author, reason string) Response {
	return n.Do(Request{Method: http.MethodPost, Path: "/v1/rollcall/self-preservation/release?" + signed(author, reason)})
}

// Explain asks the node what it knows of an instance. It returns nil without an error if the node responds with 404.
func (n *Node) Explain(app, id string) (*api.Explanation, error) {
	path := ownPath(app, id) + "/explain"
	response := n.Get(path)
	if response.Status == http.StatusNotFound {
		return nil, nil
	}
	explanation, err := decoded[api.Explanation](n, path, response)
	return &explanation, err
}

// OverrideFor forces a status for a time.
func (n *Node) OverrideFor(app, id, status string, d time.Duration, author, reason string) Response {
	return n.Do(Request{Method: http.MethodPut, Path: fmt.Sprintf("%s/override?value=%s&for=%v&%s", ownPath(app, id), status, d, signed(author, reason))})
}

// ownPath returns the resource of an instance in Rollcall's own API.
func ownPath(app, id string) string {
	return "/v1/rollcall/apps/" + url.PathEscape(strings.ToUpper(app)) + "/" + url.PathEscape(id)
}

func signed(author, reason string) string {
	return url.Values{"author": {author}, "reason": {reason}}.Encode()
}

// ask decodes the response to a GET of one of Rollcall's own resources.
func ask[T any](n *Node, path string) (T, error) { return decoded[T](n, path, n.Get(path)) }

func decoded[T any](n *Node, path string, response Response) (document T, err error) {
	if response.Status != http.StatusOK {
		return document, response.failure(n, path)
	}
	if err := json.Unmarshal(response.Body, &document); err != nil {
		return document, fmt.Errorf("node %s: %s: %w", n.Name, path, err)
	}
	return document, nil
}
