package scenario

import (
	"slices"
	"strings"
	"testing"
)

func TestSelect(t *testing.T) {
	one, two := Places(1), Places(2)
	for _, tt := range []struct {
		selector string
		nodes    []Place
		leader   int
		want     []int
	}{
		{"leader", one, 1, []int{1}},
		{"follower", one, 1, []int{2}},
		{"follower", one, 2, []int{0}},
		{"follower", two, 2, []int{0}},
		{"followers", one, 1, []int{0, 2}},
		{"followers", two, 1, []int{0, 2}},
		{"all", two, 0, []int{0, 1, 2, 3, 4, 5}},
		{"dc2", two, 0, []int{3, 4, 5}},
		{"node3", one, 0, []int{2}},
		{"node3, leader,node1", one, 0, []int{0, 2}},
	} {
		got, err := Select(tt.selector, tt.nodes, tt.leader)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("Select(%q, %d nodes, leader %d) = %v, %v, want %v", tt.selector, len(tt.nodes), tt.leader, got, err, tt.want)
		}
	}
}

func TestSelectRefusesWhatIsNoNode(t *testing.T) {
	for selector, want := range map[string]string{"": `""`, "dc2": `"dc2"`, "leader, nobody": `"nobody"`} {
		if _, err := Select(selector, Places(1), 0); err == nil || !strings.Contains(err.Error(), want+" selects no node") {
			t.Errorf("Select(%q) = %v, want that %s selects no node", selector, err, want)
		}
	}
}

func TestShare(t *testing.T) {
	for _, tt := range []struct {
		which string
		of    int
		want  int // 0: refused
	}{
		{"1", 300, 1},
		{"300", 300, 300},
		{"301", 300, 0},
		{"0", 300, 0},
		{"-1", 300, 0},
		{"10%", 300, 30},
		{"7%", 300, 21},
		{"1%", 10, 1},
		{"12.5%", 80, 10},
		{"100%", 7, 7},
		{"0%", 300, 0},
		{"101%", 300, 0},
		{"NaN%", 300, 0},
		{"some", 300, 0},
		{"", 300, 0},
	} {
		got, err := Share(tt.which, tt.of)
		if got != tt.want || (err == nil) != (tt.want > 0) {
			t.Errorf("Share(%q, %d) = %d, %v, want %d", tt.which, tt.of, got, err, tt.want)
		}
	}
}

func TestWithReplacesTheRatesThatAreGiven(t *testing.T) {
	base := defaults().Load
	got := base.With(map[string]float64{"reads": 7, "writes": 0, "instances": 1})
	want := base
	want.Reads, want.Writes = 7, 0
	if got != want {
		t.Errorf("With() = %+v, want %+v", got, want)
	}
	if base != defaults().Load {
		t.Errorf("With changed what it was called on: %+v", base)
	}
}
