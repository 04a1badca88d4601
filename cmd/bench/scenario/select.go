package scenario

import (
	"embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// NodesPerDatacenter is how many nodes a comparison's cluster has in each datacenter.
const NodesPerDatacenter = 3

// Place is where a node is.
type Place struct {
	Name       string // node1 …, numbered over all datacenters
	Datacenter string // dc1 …
}

// Places returns the nodes of a comparison's cluster, by number.
func Places(datacenters int) []Place {
	var all []Place
	for i := range datacenters * NodesPerDatacenter {
		all = append(all, Place{fmt.Sprintf("node%d", i+1), fmt.Sprintf("dc%d", i/NodesPerDatacenter+1)})
	}
	return all
}

// Select lists the nodes, by number and ascending, that a fault's selector means:
//
//   - leader: the leader of the first datacenter, when the fault begins; without consensus, the first node;
//   - follower: the node after the leader in its datacenter, or the first if the leader is the last;
//   - followers: all nodes of its datacenter but the leader;
//   - all: every node of every datacenter;
//   - dc2: every node of the datacenter of that name;
//   - node1: the node of that name.
//
// Several of them are separated by commas, as in "node1, node3". leader is the leader's number.
func Select(selector string, nodes []Place, leader int) ([]int, error) {
	var numbers []int
	for part := range strings.SplitSeq(selector, ",") {
		found := meaning(strings.TrimSpace(part), nodes, leader)
		if len(found) == 0 {
			return nil, fmt.Errorf("%q selects no node; want leader, follower, followers, all, a datacenter such as dc1, or a node such as node1", strings.TrimSpace(part))
		}
		numbers = append(numbers, found...)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), nil
}

func meaning(part string, nodes []Place, leader int) (found []int) {
	var followers []int // beginning with the one after the leader
	for i := 1; i < len(nodes); i++ {
		if next := (leader + i) % len(nodes); nodes[next].Datacenter == nodes[leader].Datacenter {
			followers = append(followers, next)
		}
	}
	switch part {
	case "leader":
		return []int{leader}
	case "follower":
		return followers[:min(1, len(followers))]
	case "followers":
		return followers
	}
	for i, n := range nodes {
		if part == "all" || n.Name == part || n.Datacenter == part {
			found = append(found, i)
		}
	}
	return found
}

// Share returns how many of a number of instances are meant, by a number ("1"), or by a share of them ("10%", rounded
// up).
func Share(which string, of int) (int, error) {
	if percent, ok := strings.CutSuffix(which, "%"); ok {
		if p, err := strconv.ParseFloat(percent, 64); err == nil && p > 0 && p <= 100 {
			// Multiplied first: otherwise 7 % of 300 would be 22.
			return int(math.Ceil(p * float64(of) / 100)), nil
		}
	} else if n, err := strconv.Atoi(which); err == nil && n >= 1 && n <= of {
		return n, nil
	}
	return 0, fmt.Errorf("%q is no part of %d instances; want a number from 1 to %d, or a share such as 10%%", which, of, of)
}

//go:embed scenarios/*.yaml
var files embed.FS

// order is the order of reports. Each is scenarios/NAME.yaml.
var order = []string{
	"steady",
	// what servers and links do to it
	"leader-killed", "node-killed", "leader-paused", "partition-minority", "leader-isolated", "majority-lost", "node-lost",
	"kills-amid-writes", "dc-link-cut", "servers-restart", "slow-disk",
	// what clients do to it
	"instances-die-one", "instances-die-tenth", "instances-die-half", "clients-restart", "flapping", "registration-storm", "read-storm",
	// what it costs
	"idle", "heartbeats-10", "heartbeats-167", "heartbeats-1000", "heartbeats-5000", "heartbeats-20000",
}

// Builtin returns the scenarios that come with the program, in the order of reports.
func Builtin() ([]Scenario, error) {
	var all []Scenario
	for _, name := range order {
		text, err := files.ReadFile("scenarios/" + name + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("scenario %s: %w", name, err)
		}
		s, err := Parse(name+".yaml", text)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}
