package integration

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// TestRegistrationIsVisibleAtOnceOnEveryNode sends what real clients send, through a follower, and
// reads it from all nodes in both forms without waiting.
func TestRegistrationIsVisibleAtOnceOnEveryNode(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../httpd/eureka/testdata/register-*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no registrations to send: %v", err)
	}
	c := StartCluster(t, Config{})
	follower := c.Others(c.Leader())[0]
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			app, id, contentType := identify(t, file, body)
			answer := follower.Do(Request{Method: http.MethodPost, Path: "/eureka/apps/" + app, Body: body, ContentType: contentType})
			if answer.Status != http.StatusNoContent {
				t.Fatalf("register: %v, want 204", answer)
			}
			for _, n := range c.Nodes {
				mustShow(t, n, app, id)
			}
			if answer := c.Nodes[0].Cancel(app, id); answer.Status != http.StatusOK {
				t.Fatalf("cancel: %v, want 200", answer)
			}
			for _, n := range c.Nodes {
				if answer := n.Get(path(app, id)); answer.Status != http.StatusNotFound {
					t.Errorf("node %s after the cancel: %v, want 404", n.Name, answer)
				}
			}
		})
	}
}

// mustShow expects one instance, alone and within the list, in JSON and XML.
func mustShow(t *testing.T, n *Node, app, id string) {
	t.Helper()
	for _, form := range []string{"application/json", "application/xml"} {
		for _, resource := range []string{path(app, id), "/eureka/apps/", "/eureka/v2/apps/" + app} {
			answer := n.Do(Request{Path: resource, Accept: form})
			if answer.Status != http.StatusOK || !bytes.Contains(answer.Body, []byte(id)) {
				t.Errorf("node %s: %s as %s: %v, want 200 with %q in it", n.Name, resource, form, answer, id)
			}
		}
	}
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
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	i := doc.Instance
	return i.App, cmp.Or(i.ID, i.DataCenter.Metadata.ID, i.Host), contentType
}
