package scenario

import (
	"embed"
	"errors"
	"fmt"
	"math"
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
	struck := make([]bool, len(nodes))
	for part := range strings.SplitSeq(selector, ",") {
		which := meaning(strings.TrimSpace(part), nodes, leader)
		found := false
		for i := range nodes {
			if which(i) {
				struck[i], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%q selects no node; want leader, follower, followers, all, a datacenter such as dc1, or a node such as node1", strings.TrimSpace(part))
		}
	}
	var numbers []int
	for i, hit := range struck {
		if hit {
			numbers = append(numbers, i)
		}
	}
	return numbers, nil
}

func meaning(part string, nodes []Place, leader int) func(node int) bool {
	switch part {
	case "leader":
		return func(i int) bool { return i == leader }
	case "follower":
		return func(i int) bool { return i == follower(nodes, leader) }
	case "followers":
		return func(i int) bool { return i != leader && nodes[i].Datacenter == nodes[leader].Datacenter }
	case "all":
		return func(int) bool { return true }
	default:
		return func(i int) bool { return nodes[i].Name == part || nodes[i].Datacenter == part }
	}
}

// follower returns the node after the leader in its datacenter, or -1 if the leader is alone there.
func follower(nodes []Place, leader int) int {
	for i := 1; i < len(nodes); i++ {
		next := (leader + i) % len(nodes)
		if nodes[next].Datacenter == nodes[leader].Datacenter {
			return next
		}
	}
	return -1
}

// Share returns how many of a number of instances are meant, by a number ("1"), or by a share of them ("10%", rounded
// up).
func Share(which string, of int) (int, error) {
	count, err := share(which, of)
	if err != nil {
		return 0, fmt.Errorf("%q is no part of %d instances; want a number from 1 to %d, or a share such as 10%%", which, of, of)
	}
	return count, nil
}

func share(which string, of int) (int, error) {
	if percent, ok := strings.CutSuffix(which, "%"); ok {
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil || !(p > 0 && p <= 100) {
			return 0, strconv.ErrRange
		}
		// Multiplied first: otherwise 7 % of 300 would be 22.
		return int(math.Ceil(p * float64(of) / 100)), nil
	}
	n, err := strconv.Atoi(which)
	if err != nil || n < 1 || n > of {
		return 0, strconv.ErrRange
	}
	return n, nil
}

//go:embed scenarios/*.yaml
var files embed.FS

// order is the order of reports: first the normal state, then what servers, links and clients do to it, then what it
// costs. Each is scenarios/NAME.yaml.
var order = []string{
	"steady",
	"leader-killed",
	"node-killed",
	"leader-paused",
	"partition-minority",
	"leader-isolated",
	"majority-lost",
	"node-lost",
	"kills-amid-writes",
	"dc-link-cut",
	"servers-restart",
	"slow-disk",
	"instances-die-one",
	"instances-die-tenth",
	"instances-die-half",
	"clients-restart",
	"flapping",
	"registration-storm",
	"read-storm",
	"idle",
	"heartbeats-10",
	"heartbeats-167",
	"heartbeats-1000",
	"heartbeats-5000",
	"heartbeats-20000",
}

// Builtin returns the scenarios that come with the program, in the order of reports.
func Builtin() ([]Scenario, error) {
	var all []Scenario
	var errs []error
	for _, name := range order {
		s, err := builtin(name)
		all, errs = append(all, s), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}

func builtin(name string) (Scenario, error) {
	file := name + ".yaml"
	text, err := files.ReadFile("scenarios/" + file)
	if err != nil {
		return Scenario{}, fmt.Errorf("scenario %s: %w", name, err)
	}
	return Parse(file, text)
}
