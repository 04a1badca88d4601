package integration

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-20419f34/rollcall/httpd/conformance"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestRegistrationIsVisibleAtOnceOnEveryNode sends what real clients send, through a follower, and
// reads it from all nodes in both forms without waiting, and without consensus as soon as it is there.
func TestRegistrationIsVisibleAtOnceOnEveryNode(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../httpd/eureka/testdata/register-*")
	need.That(t, err == nil && len(files) != 0, "no registrations to send: %v", err)
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, smallConfig(ap, 2))
		through := c.Nodes[1]
		if !ap {
			through = c.Others(c.Leader())[0]
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) { registerEverywhere(t, c, through, file) })
		}
	})
}

func registerEverywhere(t *testing.T, c *Cluster, through *Node, file string) {
	body := need.Got(os.ReadFile(file))(t)
	app, id, contentType := identify(t, file, body)
	response := untilNotRefused(func() Response {
		return through.Do(Request{Method: http.MethodPost, Path: "/eureka/apps/" + app, Body: body, ContentType: contentType})
	})
	need.That(t, response.Status == http.StatusNoContent, "register: %v, want 204", response)
	c.mustOnEvery(t, "the registration", func(n *Node) error { return shows(n, app, id) })
	mustCancel(t, c.Nodes[0], app, id)
	c.mustOnEvery(t, "the instance after its cancel", func(n *Node) error {
		if response := n.Get(path(app, id)); response.Status != http.StatusNotFound {
			return response.failure(n, "want 404")
		}
		return nil
	})
}

// shows returns nil if a node shows an instance, alone and within the lists, in JSON and XML.
func shows(n *Node, app, id string) error {
	for _, form := range []string{"application/json", "application/xml"} {
		for _, resource := range []string{path(app, id), "/eureka/apps/", "/eureka/v2/apps/" + app} {
			response := n.Do(Request{Path: resource, Accept: form})
			if response.Status != http.StatusOK || !bytes.Contains(response.Body, []byte(id)) {
				return response.failure(n, fmt.Sprintf("%s as %s, want 200 with %q in it", resource, form, id))
			}
		}
	}
	return nil
}

// named is what a registration says about its own name, in either form.
type named struct {
	ID         string `json:"instanceId" xml:"instanceId"`
	Host       string `json:"hostName" xml:"hostName"`
	App        string `json:"app" xml:"app"`
	DataCenter struct {
		Metadata struct {
			ID string `json:"instance-id" xml:"instance-id"`
		} `json:"metadata" xml:"metadata"`
	} `json:"dataCenterInfo" xml:"dataCenterInfo"`
}

// identify reads the application and the id (by the protocol's order) out of a registration.
func identify(t *testing.T, file string, body []byte) (app, id, contentType string) {
	t.Helper()
	var doc struct{ Instance named }
	err := json.Unmarshal(body, &doc)
	contentType = "application/json"
	if filepath.Ext(file) == ".xml" {
		err = xml.Unmarshal(body, &doc.Instance)
		contentType = "application/xml"
	}
	need.OKf(t, err, "%s", file)
	i := doc.Instance
	return i.App, cmp.Or(i.ID, i.DataCenter.Metadata.ID, i.Host), contentType
}

// TestConformance runs the protocol's suite against a node of a cluster in either mode: with consensus
// one that does not lead, so that every write is forwarded.
func TestConformance(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, withSteadyLeader(Config{AP: ap}))
		n := c.Nodes[0]
		if !ap {
			n = c.Others(c.Leader())[0]
		}
		conformance.Run(t, conformance.Target{URL: n.URL(), Fixtures: os.DirFS("../httpd/eureka/testdata"), Consensus: !ap})
	})
}
