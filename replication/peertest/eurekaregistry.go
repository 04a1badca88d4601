package peertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fakeRegistry is the registry of a Netflix Eureka server, written from the description of the protocol: it shares no
// code with ours, so that it does not repeat our mistakes. It does not time its leases.
type fakeRegistry struct {
	Apps      map[string]map[string]*EurekaInstance
	overrides map[string]string // by id alone, as upstream
	recent    []*EurekaInstance // the delta, newest last
	version   int
}

// EurekaInstance is the full JSON form. It is read as strictly as by Spring's decoder: one key that is not here
// refuses the document.
type EurekaInstance struct {
	InstanceID         string            `json:"instanceId,omitempty"`
	HostName           string            `json:"hostName"`
	App                string            `json:"app"`
	IPAddr             string            `json:"ipAddr"`
	SID                string            `json:"sid,omitempty"`
	Status             string            `json:"status"`
	Overridden         string            `json:"overriddenStatus"`
	Port               *fakePort         `json:"port"`
	SecurePort         *fakePort         `json:"securePort"`
	CountryID          int               `json:"countryId"`
	DataCenter         *fakeDataCenter   `json:"dataCenterInfo"`
	Lease              *fakeLease        `json:"leaseInfo"`
	Metadata           map[string]string `json:"metadata"`
	AppGroup           string            `json:"appGroupName,omitempty"`
	HomePage           string            `json:"homePageUrl,omitempty"`
	StatusPage         string            `json:"statusPageUrl,omitempty"`
	HealthCheck        string            `json:"healthCheckUrl,omitempty"`
	SecureHealth       string            `json:"secureHealthCheckUrl,omitempty"`
	VIP                string            `json:"vipAddress,omitempty"`
	SecureVIP          string            `json:"secureVipAddress,omitempty"`
	CoordinatingServer string            `json:"isCoordinatingDiscoveryServer"`
	LastUpdated        fakeTime          `json:"lastUpdatedTimestamp"`
	LastDirty          fakeTime          `json:"lastDirtyTimestamp"`
	Action             string            `json:"actionType,omitempty"`
	ASG                string            `json:"asgName,omitempty"`
}

type fakePort struct {
	Number  int    `json:"$"`
	Enabled string `json:"@enabled"`
}

type fakeDataCenter struct {
	Class string `json:"@class"`
	Name  string `json:"name"`
}

type fakeLease struct {
	Interval     int   `json:"renewalIntervalInSecs"`
	Duration     int   `json:"durationInSecs"`
	Registration int64 `json:"registrationTimestamp"`
	LastRenewal  int64 `json:"lastRenewalTimestamp"`
	Eviction     int64 `json:"evictionTimestamp"`
	ServiceUp    int64 `json:"serviceUpTimestamp"`
}

// fakeTime is in ms since the Unix epoch. It is text in an instance; a number is also read.
type fakeTime int64

func (t fakeTime) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `"%d"`, int64(t)), nil }

func (t *fakeTime) UnmarshalJSON(text []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(text), `"`), 10, 64)
	*t = fakeTime(n)
	return err
}

// decodeStrictly reads a whole document and refuses keys that are not in it.
func decodeStrictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the document")
	}
	return nil
}

// Lacks names the first thing that a real server or its clients need and the instance lacks.
func (i *EurekaInstance) Lacks() string {
	statuses := []string{"UP", "DOWN", "STARTING", "OUT_OF_SERVICE", "UNKNOWN"}
	switch {
	case i.id() == "":
		return "instanceId"
	case i.HostName == "":
		return "hostname"
	case i.IPAddr == "":
		return "ip address"
	case i.App == "":
		return "appName"
	case i.DataCenter == nil || i.DataCenter.Class == "" || i.DataCenter.Name == "":
		return "dataCenterInfo"
	case !slices.Contains(statuses, i.Status):
		return "status"
	case !slices.Contains(statuses, i.Overridden):
		return "overriddenStatus"
	case i.Lease == nil:
		return "leaseInfo"
	case i.Port == nil || i.SecurePort == nil:
		return "port"
	case i.LastDirty == 0:
		return "lastDirtyTimestamp"
	}
	return ""
}

func (i *EurekaInstance) id() string {
	if i.InstanceID != "" {
		return i.InstanceID
	}
	return i.HostName
}

func (r *fakeRegistry) find(app, id string) *EurekaInstance { return r.Apps[strings.ToUpper(app)][id] }

// register is AbstractInstanceRegistry.register. It returns what was stored.
func (r *fakeRegistry) register(in EurekaInstance, replication bool) *EurekaInstance {
	i := &in
	app, id := strings.ToUpper(i.App), i.id()
	existing := r.find(app, id)
	if existing != nil && existing.LastDirty > i.LastDirty {
		kept := *existing
		i = &kept
	}
	if r.Apps[app] == nil {
		r.Apps[app] = map[string]*EurekaInstance{}
	}
	if _, there := r.overrides[id]; !there && i.Overridden != "UNKNOWN" {
		r.overrides[id] = i.Overridden
	}
	if o, there := r.overrides[id]; there {
		i.Overridden = o
	}
	i.Status = r.decide(i, existing, replication)
	r.Apps[app][id] = i
	r.changed(i, "ADDED")
	return i
}

// decide is the chain of status rules.
func (r *fakeRegistry) decide(i, existing *EurekaInstance, replication bool) string {
	if i.Status != "UP" && i.Status != "OUT_OF_SERVICE" {
		return i.Status
	}
	if o, there := r.overrides[i.id()]; there {
		return o
	}
	if !replication && existing != nil && (existing.Status == "UP" || existing.Status == "OUT_OF_SERVICE") {
		return existing.Status
	}
	return i.Status
}

// renew is AbstractInstanceRegistry.renew with InstanceResource.renewLease. It returns the instance with a 409.
func (r *fakeRegistry) renew(app, id string, dirty fakeTime, override string, replication bool) (status int, newer *EurekaInstance) {
	i := r.find(app, id)
	if i == nil {
		return 404, nil
	}
	if i.Status = r.decide(i, i, replication); i.Status == "UNKNOWN" {
		return 404, nil
	}
	switch {
	case dirty == 0 || dirty == i.LastDirty:
		return 200, nil
	case dirty > i.LastDirty:
		if replication && override != "" && override != "UNKNOWN" && override != i.Overridden {
			r.overrides[id] = override
			i.Overridden = override
		}
		return 404, nil
	case replication:
		return 409, i
	}
	return 200, nil
}

// cancel is AbstractInstanceRegistry.cancel.
func (r *fakeRegistry) cancel(app, id string) int {
	delete(r.overrides, id)
	i := r.find(app, id)
	if i == nil {
		return 404
	}
	delete(r.Apps[strings.ToUpper(app)], id)
	if len(r.Apps[strings.ToUpper(app)]) == 0 {
		delete(r.Apps, strings.ToUpper(app))
	}
	canceled := *i
	r.changed(&canceled, "DELETED")
	return 200
}

// setOverride is AbstractInstanceRegistry.statusUpdate, which does nothing for a status that the instance already
// has.
func (r *fakeRegistry) setOverride(app, id, status string, dirty fakeTime) int {
	i := r.find(app, id)
	if i == nil {
		return 404
	}
	if i.Status == status {
		return 200
	}
	r.overrides[id] = status
	i.Overridden, i.Status = status, status
	i.LastDirty = max(i.LastDirty, dirty)
	r.changed(i, "MODIFIED")
	return 200
}

// deleteOverride is AbstractInstanceRegistry.deleteStatusOverride.
func (r *fakeRegistry) deleteOverride(app, id, fallback string, dirty fakeTime) int {
	i := r.find(app, id)
	if i == nil {
		return 404
	}
	if _, there := r.overrides[id]; !there {
		return 200
	}
	delete(r.overrides, id)
	i.Overridden, i.Status = "UNKNOWN", fallback
	i.LastDirty = max(i.LastDirty, dirty)
	r.changed(i, "MODIFIED")
	return 200
}

func (r *fakeRegistry) changed(i *EurekaInstance, action string) {
	i.Action, i.LastUpdated = action, fakeTime(time.Now().UnixMilli())
	r.recent = append(r.recent, i)
	r.version++
}
