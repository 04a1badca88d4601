package replication

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// wireInstance is a registry.Instance without its application, field by field, so that a copy is
// equal to the original: Eureka's documents fill in what was not given.
type wireInstance struct {
	InstanceID      string         `json:"instanceId,omitempty"`
	HostName        string         `json:"hostName,omitempty"`
	IPAddr          string         `json:"ipAddr,omitempty"`
	SID             string         `json:"sid,omitempty"`
	Status          string         `json:"status"` // that the client reported
	Port            *wirePort      `json:"port,omitempty"`
	SecurePort      *wirePort      `json:"securePort,omitempty"`
	CountryID       int32          `json:"countryId,omitempty"`
	DataCenter      wireDataCenter `json:"dataCenter"`
	RenewalInterval int32          `json:"renewalInterval,omitempty"` // seconds, as given
	Duration        int32          `json:"duration,omitempty"`        // seconds, as given
	Metadata        []wirePair     `json:"metadata,omitempty"`
	AppGroup        string         `json:"appGroup,omitempty"`
	HomePageURL     string         `json:"homePageUrl,omitempty"`
	StatusPageURL   string         `json:"statusPageUrl,omitempty"`
	HealthCheckURL  string         `json:"healthCheckUrl,omitempty"`
	SecureHealthURL string         `json:"secureHealthCheckUrl,omitempty"`
	VIP             string         `json:"vip,omitempty"`
	SecureVIP       string         `json:"secureVip,omitempty"`
	ASG             string         `json:"asg,omitempty"`
	LastDirty       int64          `json:"lastDirty,omitempty"`
}

type wirePort struct {
	Number  uint16 `json:"number,omitempty"`
	Enabled bool   `json:"enabled,omitempty"`
}

type wireDataCenter struct {
	Name     string     `json:"name,omitempty"`
	Metadata []wirePair `json:"metadata,omitempty"`
}

// wirePair is a key and its value. Pairs are arrays, because their order is kept.
type wirePair [2]string

func instanceToWire(i *registry.Instance) *wireInstance {
	return &wireInstance{
		InstanceID:      i.InstanceID,
		HostName:        i.HostName,
		IPAddr:          i.IPAddr,
		SID:             i.SID,
		Status:          i.Status.String(),
		Port:            portToWire(i.Port),
		SecurePort:      portToWire(i.SecurePort),
		CountryID:       i.CountryID,
		DataCenter:      wireDataCenter{i.DataCenter.Name, pairsToWire(i.DataCenter.Metadata)},
		RenewalInterval: i.RenewalInterval,
		Duration:        i.Duration,
		Metadata:        pairsToWire(i.Metadata),
		AppGroup:        i.AppGroup,
		HomePageURL:     i.HomePageURL,
		StatusPageURL:   i.StatusPageURL,
		HealthCheckURL:  i.HealthCheckURL,
		SecureHealthURL: i.SecureHealthURL,
		VIP:             i.VIP,
		SecureVIP:       i.SecureVIP,
		ASG:             i.ASG,
		LastDirty:       i.LastDirty,
	}
}

// toInstance is the inverse of instanceToWire. The error says what is not valid.
func (w *wireInstance) toInstance(app string) (*registry.Instance, error) {
	status, ok := registry.ParseStatus(w.Status)
	if !ok {
		return nil, fmt.Errorf("status %q is none of UP, DOWN, STARTING, OUT_OF_SERVICE and UNKNOWN", clip(w.Status))
	}
	i := &registry.Instance{
		InstanceID:      w.InstanceID,
		HostName:        w.HostName,
		App:             app,
		IPAddr:          w.IPAddr,
		SID:             w.SID,
		Status:          status,
		Port:            w.Port.toPort(),
		SecurePort:      w.SecurePort.toPort(),
		CountryID:       w.CountryID,
		DataCenter:      registry.DataCenter{Name: w.DataCenter.Name, Metadata: toPairs(w.DataCenter.Metadata)},
		RenewalInterval: w.RenewalInterval,
		Duration:        w.Duration,
		Metadata:        toPairs(w.Metadata),
		AppGroup:        w.AppGroup,
		HomePageURL:     w.HomePageURL,
		StatusPageURL:   w.StatusPageURL,
		HealthCheckURL:  w.HealthCheckURL,
		SecureHealthURL: w.SecureHealthURL,
		VIP:             w.VIP,
		SecureVIP:       w.SecureVIP,
		ASG:             w.ASG,
		LastDirty:       w.LastDirty,
	}
	if i.LastDirty < 0 {
		return nil, fmt.Errorf("lastDirty %d is negative", i.LastDirty)
	}
	if err := eureka.CheckMetadata(i.Metadata); err != nil {
		return nil, err
	}
	return i, eureka.CheckMetadata(i.DataCenter.Metadata)
}

// portToWire leaves out a port of which nothing was said.
func portToWire(p registry.Port) *wirePort {
	if p == (registry.Port{}) {
		return nil
	}
	return &wirePort{p.Number, p.Enabled}
}

func (w *wirePort) toPort() registry.Port {
	if w == nil {
		return registry.Port{}
	}
	return registry.Port{Number: w.Number, Enabled: w.Enabled}
}

func pairsToWire(pairs []registry.Pair) []wirePair {
	if pairs == nil {
		return nil
	}
	wire := make([]wirePair, len(pairs))
	for i, p := range pairs {
		wire[i] = wirePair{p.Key, p.Value}
	}
	return wire
}

func toPairs(wire []wirePair) []registry.Pair {
	if len(wire) == 0 {
		return nil
	}
	pairs := make([]registry.Pair, len(wire))
	for i, p := range wire {
		pairs[i] = registry.Pair{Key: p[0], Value: p[1]}
	}
	return pairs
}
