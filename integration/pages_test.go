package integration

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// line is the line of state that a node's dashboard shows.
func (n *Node) line() string {
	page := string(n.Get("/ui/nodes").Body)
	found := regexp.MustCompile(`(?s)<div id="truth"[^>]*>(.*?)</div>`).FindStringSubmatch(page)
	if found == nil {
		return ""
	}
	return html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(found[1], " "))
}

// lineHas waits until the line of a node has words.
func (n *Node) lineHas(t *testing.T, words ...string) {
	t.Helper()
	Eventually(t, ReadyLimit, fmt.Sprintf("%s says %q", n.Name, words), func() error {
		line := n.line()
		for _, w := range words {
			if !strings.Contains(line, w) {
				return fmt.Errorf("it says %q", line)
			}
		}
		return nil
	})
}

// TestDashboardTellsTheTruthThroughFaults stops nodes of a cluster one after the other, and reads the line of those that are left.
func TestDashboardTellsTheTruthThroughFaults(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	leader := c.Leader()
	others := c.Others(leader)
	leader.lineHas(t, "No service is registered yet.")
	need.Equal(t, leader.Register(Instance{App: "ORDERS", ID: "orders-1", Duration: 300}).Outcome(), Done, "a registration is")
	leader.lineHas(t, "Healthy.", leader.Name+" leads", "3 of 3 nodes agree", "one node may fail")
	others[0].Pause(t)
	leader.lineHas(t, others[0].Name+" does not answer since", "no further node may fail")
	others[1].Pause(t)
	leader.lineHas(t, "cut off from the others", "Others may go on without it")
	others[1].Resume(t)
	c.Leader(leader, others[1])
	others[1].lineHas(t, others[0].Name+" does not answer since")
	others[0].Resume(t)
	leads := c.Leader()
	leads.lineHas(t, "too short a time to know which instances are alive") // as long as the lease of 300 s
	for _, n := range c.Others(leads) {
		n.lineHas(t, "Healthy.", "3 of 3 nodes agree")
	}
}

// TestActOfAPageIsThatOfItsCommand drains one instance by a page and another one by the command that the page offered: what every
// node knows of both is the same.
func TestActOfAPageIsThatOfItsCommand(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	n := c.Nodes[0]
	for _, id := range []string{"orders-1", "orders-2", "orders-3"} {
		need.Equal(t, n.Register(Instance{App: "ORDERS", ID: id, Duration: 300}).Outcome(), Done, "a registration is")
	}
	need.OK(t, shows(n, "ORDERS", "orders-3")) // the form counts the others in the node's own view
	form := url.Values{"app": {"ORDERS"}, "id": {"orders-1"}, "reason": {"kernel update"}, "author": {"ann"}}
	done := n.Do(Request{Method: http.MethodPost, Path: "/ui/acts/drain", Body: []byte(form.Encode()), ContentType: "application/x-www-form-urlencoded"})
	need.That(t, done.Status == http.StatusSeeOther || done.Status == http.StatusOK, "got %+v", done)

	page := string(n.Get("/ui/acts/drain?app=ORDERS&id=orders-2&reason=kernel+update&author=ann").Body)
	command := regexp.MustCompile(`(?s)<pre id="command"[^>]*>(.*?)</pre>`).FindStringSubmatch(page)
	need.That(t, command != nil, "the page has no command: %s", page)
	line := html.UnescapeString(command[1])
	line = strings.Replace(line, "rollcall ", Binary(t)+" ", 1) + " --settle 0s"
	out, err := exec.Command("sh", "-c", line).CombinedOutput()
	need.That(t, err == nil, "%s: %v: %s", line, err, out)

	for _, node := range c.Nodes {
		Eventually(t, ReadyLimit, node.Name+" knows of both", func() error {
			one, err := node.Explain("ORDERS", "orders-1")
			if err != nil {
				return err
			}
			two, err := node.Explain("ORDERS", "orders-2")
			if err != nil {
				return err
			}
			return unless(one.Override != nil && two.Override != nil && one.Status == registry.OutOfService.String() && two.Status == one.Status, "%+v, %+v", one, two)
		})
		one, two := need.Got(node.Explain("ORDERS", "orders-1"))(t), need.Got(node.Explain("ORDERS", "orders-2"))(t)
		expect.That(t, one.Override.Author == two.Override.Author && one.Override.Reason == two.Override.Reason && one.Override.Author == "ann",
			"%s: by the page %+v, by the command %+v", node.Name, one.Override, two.Override)
	}
}
