package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Instance is what tests register and read back: the part of Eureka's document that they examine.
type Instance struct {
	App, ID  string
	Host     string // localhost if empty
	Status   string // UP if empty
	Duration int    // of the lease, in seconds; 0 means 90
	Port     int    // 0 means 8080
	Dirty    int64  // lastDirtyTimestamp, ms since the Unix epoch; 0 if none is given
	Metadata map[string]string
}

// document returns Eureka's JSON of a registration, in the Java client's spelling.
func (i Instance) document() []byte {
	status, duration := i.Status, i.Duration
	if status == "" {
		status = "UP"
	}
	if duration == 0 {
		duration = 90
	}
	fields := map[string]any{
		"instanceId": i.ID, "app": strings.ToUpper(i.App), "hostName": cmp.Or(i.Host, "localhost"), "ipAddr": "127.0.0.1",
		"status": status, "vipAddress": i.App, "secureVipAddress": i.App,
		"port":           map[string]any{"$": cmp.Or(i.Port, 8080), "@enabled": "true"},
		"securePort":     map[string]any{"$": 443, "@enabled": "false"},
		"dataCenterInfo": map[string]any{"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"},
		"leaseInfo":      map[string]any{"renewalIntervalInSecs": max(1, duration/3), "durationInSecs": duration},
		"metadata":       i.Metadata,
	}
	if i.Dirty != 0 {
		fields["lastDirtyTimestamp"] = strconv.FormatInt(i.Dirty, 10)
	}
	doc, err := json.Marshal(map[string]any{"instance": fields})
	if err != nil {
		panic(err) // strings and numbers only: cannot happen
	}
	return doc
}

// path returns the resource of an instance under the default base.
func path(app, id string) string {
	return "/eureka/apps/" + url.PathEscape(strings.ToUpper(app)) + "/" + url.PathEscape(id)
}

// Register registers i at the node.
func (n *Node) Register(i Instance) Response {
	return n.Do(Request{Method: http.MethodPost, Path: "/eureka/apps/" + url.PathEscape(i.App), Body: i.document(), ContentType: "application/json"})
}

// Renew sends a heartbeat.
func (n *Node) Renew(app, id string) Response {
	return n.Do(Request{Method: http.MethodPut, Path: path(app, id)})
}

// Cancel cancels an instance.
func (n *Node) Cancel(app, id string) Response {
	return n.Do(Request{Method: http.MethodDelete, Path: path(app, id)})
}

// Override forces a status, as an operator does.
func (n *Node) Override(app, id, status string) Response {
	return n.Do(Request{Method: http.MethodPut, Path: path(app, id) + "/status?value=" + status})
}

// EndOverride ends a forced status.
func (n *Node) EndOverride(app, id string) Response {
	return n.Do(Request{Method: http.MethodDelete, Path: path(app, id) + "/status"})
}

// Listed is an instance as the server shows it.
type Listed struct {
	InstanceID string            `json:"instanceId"`
	App        string            `json:"app"`
	Status     string            `json:"status"`
	Overridden string            `json:"overriddenStatus"`
	Action     string            `json:"actionType"`
	Metadata   map[string]string `json:"metadata"`
	Port       struct {
		Number  int    `json:"$"`
		Enabled string `json:"@enabled"`
	} `json:"port"`
	LeaseInfo struct {
		Duration   int64 `json:"durationInSecs"`
		Registered int64 `json:"registrationTimestamp"`
		Renewed    int64 `json:"lastRenewalTimestamp"`
	} `json:"leaseInfo"`
}

// Lookup reads one instance. It returns nil without an error if the node responds with 404.
func (n *Node) Lookup(app, id string) (*Listed, error) {
	response := n.Get(path(app, id))
	switch response.Status {
	case http.StatusNotFound:
		return nil, nil
	case http.StatusOK:
	default:
		return nil, response.failure(n, app+"/"+id)
	}
	instance, err := ParseInstance(response.Body)
	return &instance, err
}

// ParseInstance decodes a document of one instance.
func ParseInstance(body []byte) (Listed, error) {
	var doc struct{ Instance Listed }
	if err := json.Unmarshal(body, &doc); err != nil {
		return Listed{}, fmt.Errorf("instance document: %w", err)
	}
	return doc.Instance, nil
}

// Listing reads the whole registry with the default consistency: instances by id. Ids must be unique over all
// applications.
func (n *Node) Listing() (map[string]Listed, error) { return n.ListingOf("/eureka/apps") }

// ListingOf is Listing for any path that responds with an applications document.
func (n *Node) ListingOf(path string) (map[string]Listed, error) {
	response := n.Get(path)
	if response.Status != http.StatusOK {
		return nil, response.failure(n, path)
	}
	return ParseListing(response.Body)
}

// ParseListing decodes an applications document: instances by id.
func ParseListing(body []byte) (map[string]Listed, error) {
	var doc struct {
		Applications struct {
			Application []struct{ Instance []Listed }
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("applications document: %w", err)
	}
	found := map[string]Listed{}
	for _, app := range doc.Applications.Application {
		for _, instance := range app.Instance {
			found[instance.InstanceID] = instance
		}
	}
	return found, nil
}
