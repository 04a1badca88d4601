package consul

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

// Self is the answer of agent/self. Every top-level member is an object: the official client decodes a
// map of maps.
type Self struct {
	Config      SelfConfig
	DebugConfig struct{}
	Coord       struct{}
	Member      Member
	Stats       map[string]map[string]string
	Meta        map[string]string
}

// SelfConfig is what clients read of an agent's configuration.
type SelfConfig struct {
	Datacenter        string
	PrimaryDatacenter string
	NodeName          string
	NodeID            string
	Server            bool
	Revision          string
	Version           string
}

// Member is a server of the cluster, in answers of agent/members.
type Member struct {
	Name        string
	Addr        string
	Port        int
	Tags        map[string]string
	Status      int // MemberAlive or MemberFailed
	ProtocolMin int
	ProtocolMax int
	ProtocolCur int
	DelegateMin int
	DelegateMax int
	DelegateCur int
}

// The states of a member (serf's).
const (
	MemberAlive  = 1
	MemberFailed = 4
)

// Member is a server as a member, with the versions of the protocols that Consul's servers speak.
func (h Home) Member(name, host string, port int, alive bool) Member {
	m := Member{
		Name: name, Addr: host, Port: port, Status: MemberFailed,
		Tags: map[string]string{
			"role": "consul", "dc": h.Datacenter, "id": uuidOf("server " + h.Epoch + " " + name), "port": fmt.Sprint(port), "build": h.Version,
			"acls": "0", "vsn": "2", "vsn_min": "2", "vsn_max": "3",
		},
		ProtocolMin: 1, ProtocolMax: 5, ProtocolCur: 2, DelegateMin: 2, DelegateMax: 5, DelegateCur: 4,
	}
	if alive {
		m.Status = MemberAlive
	}
	return m
}

// Self is what the logical agent says of itself; member is the server that answers, leader the address
// of the one that leads.
func (h Home) Self(member Member, leader string) Self {
	return Self{
		Config: SelfConfig{
			Datacenter: h.Datacenter, PrimaryDatacenter: h.Datacenter, NodeName: NodeName, NodeID: h.NodeID(), Server: true, Version: h.Version,
		},
		Member: member,
		Stats: map[string]map[string]string{
			"build":  {"version": h.Version},
			"consul": {"server": "true", "known_datacenters": "1", "leader_addr": leader},
		},
		Meta: h.meta(),
	}
}

// WithHash returns the service with the hash of its content, by which a client waits for its change.
func (s AgentService) WithHash() AgentService {
	s.ContentHash = ""
	text, _ := json.Marshal(s) // texts, numbers and JSON always encode
	sum := sha256.Sum256(text)
	s.ContentHash = fmt.Sprintf("%x", sum[:8])
	return s
}
