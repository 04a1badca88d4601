package integration

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// differences is the page that lists where a published Eureka server and Rollcall respond differently, each with its
// reason.
const differences = "../docs/reference/protocol/eureka-differences.md"

var update = flag.Bool("update", false, "write the table of docs/reference/protocol/eureka-differences.md anew; reasons are kept")

// It sends every probe to a published server and to a node of each mode: their responses and the application
// afterwards are the same, or the page says why not.
func TestDifferencesFromAPublishedServerAreListed(t *testing.T) {
	installed(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	t.Parallel()
	theirs := startLoneEurekaServer(t, "", FreeAddr(t))
	cp := StartCluster(t, withSteadyLeader(Config{Nodes: 1})).Nodes[0]
	ap := StartCluster(t, Config{Nodes: 1, AP: true}).Nodes[0]
	found := map[string][2]string{} // by probe: the published server's part, and Rollcall's
	for i, p := range probes() {
		p = p.of(i)
		their, our := p.observe(t, theirs), p.observe(t, cp)
		need.Deep(t, p.observe(t, ap), our, "%s: without consensus the response and what follows it are", p.name)
		if left, right := their.unlike(our), our.unlike(their); left != right {
			_, twice := found[p.name]
			need.That(t, !twice, "two probes are called %q", p.name)
			found[p.name] = [2]string{left, right}
		}
	}
	counts := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.has(name, found[name]) })
		if expect.That(t, i >= 0, "%s: published is %q and Rollcall's %q, which is of no kind of differences", name, found[name][0], found[name][1]) {
			counts[kinds[i].name]++
		}
	}
	page := string(need.Got(os.ReadFile(differences))(t))
	now := withRows(page, counts)
	if *update {
		need.OK(t, os.WriteFile(differences, []byte(now), 0o644))
	}
	expect.That(t, now == page, "%s does not have the kinds of differences and their numbers; with -update it has", differences)
	for _, row := range rowOf.FindAllStringSubmatch(now, -1) {
		expect.That(t, row[2] != "0", "there is no difference any more of the kind %q", row[1])
		expect.That(t, row[3] != "", "%s has no reason for %q", differences, row[1])
	}
}

// rowOf matches a row of the page's table: kind, number of probes, published, Rollcall, reason.
var rowOf = regexp.MustCompile("(?m)^\\| ([^|]+) \\| (\\d+) \\| [^|]* \\| [^|]* \\| ([^|]*) ?\\|\n")

// withRows returns the page with a row for each kind and the reasons that it has.
func withRows(page string, counts map[string]int) string {
	head, _, _ := strings.Cut(page, "|---|---|---|---|---|\n")
	reasons := map[string]string{}
	for _, row := range rowOf.FindAllStringSubmatch(page, -1) {
		reasons[row[1]] = strings.TrimSpace(row[3])
	}
	var rows strings.Builder
	rows.WriteString(head + "|---|---|---|---|---|\n")
	for _, k := range kinds {
		fmt.Fprintf(&rows, "| %s | %d | %s | %s | %s |\n", k.name, counts[k.name], k.published, k.ours, reasons[k.name])
	}
	return rows.String()
}

// probe is one request. {app}, {id} and {host} in its path and body are names of its own.
type probe struct {
	name         string
	method, path string
	header       map[string]string
	body         string
	fresh        bool   // the instance is not registered before
	zipped       bool   // the body is sent in gzip
	number       string // of the names
}

// of returns the probe with its names.
func (p probe) of(i int) probe {
	p.number = strconv.Itoa(i)
	names := strings.NewReplacer("{app}", "PROBE"+p.number, "{lower}", "probe"+p.number, "{id}", "host"+p.number+":web:8080", "{host}", "host"+p.number)
	p.path, p.body = names.Replace(p.path), names.Replace(p.body)
	if p.zipped {
		p.body = gzipped(p.body)
	}
	return p
}

// observe sends the probe to a server and examines the application afterwards, which it then removes.
func (p probe) observe(t *testing.T, n *Node) observation {
	t.Helper()
	app := "PROBE" + p.number
	if !p.fresh {
		seed := probe{method: "POST", path: ownApp, body: wrapped(registration())}
		i := need.Got(strconv.Atoi(p.number))(t)
		need.Equal(t, seed.of(i).send(t, n).Status, 204, "%s: the registration before it", p.name)
	}
	seen := observation{}
	seen.add("", p, p.send(t, n))
	after := probe{method: "GET", path: "/eureka/apps/" + app}.send(t, n)
	seen.add("then ", p, after)
	instances := need.Got(instancesOf(after))(t)
	for _, id := range instances {
		cancel := jsonOf(map[string]any{"replicationList": []any{map[string]any{"appName": app, "id": id, "action": "Cancel"}}})
		// ids with a slash, too
		removal := probe{name: p.name + ", cancel", method: "POST", path: "/eureka/peerreplication/batch/", body: cancel}.send(t, n)
		need.That(t, removal.Status == http.StatusOK, "%s: cancel %q: %v", p.name, id, removal)
	}
	return seen
}

func instancesOf(application Response) (ids []string, err error) {
	var doc struct {
		Application struct {
			Instance []struct{ InstanceID, HostName string }
		}
	}
	if application.Status == http.StatusOK {
		err = json.Unmarshal(application.Body, &doc)
	}
	for _, i := range doc.Application.Instance {
		ids = append(ids, cmp.Or(i.InstanceID, i.HostName)) // as a published server has it
	}
	return ids, err
}

// literal sends paths unchanged, and shows bodies unchanged.
var literal = &http.Transport{DisableCompression: true}

// send sends the probe's path byte by byte.
func (p probe) send(t *testing.T, n *Node) Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), CallLimit)
	defer cancel()
	req := need.Got(http.NewRequestWithContext(ctx, p.method, n.URL(), strings.NewReader(p.body)))(t)
	req.URL.Opaque = p.path
	req.Header.Set("Accept", "application/json")
	if p.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range p.header {
		if req.Header.Set(name, value); value == "" {
			req.Header.Del(name)
		}
	}
	resp, err := literal.RoundTrip(req)
	need.OKf(t, err, "%s at %s", p.name, n.HTTP)
	defer resp.Body.Close()
	body := need.Got(io.ReadAll(resp.Body))(t)
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: body}
}

// observation is what a probe sees: the response, and the application after it, leaf by leaf.
type observation map[string]string

// errorPage matches a body that a published server's framework makes for an error without a body.
var errorPage = regexp.MustCompile(`^\{"timestamp":|Whitelabel Error Page|<title>HTTP Status`)

func (o observation) add(of string, p probe, r Response) {
	o[of+"status"] = strconv.Itoa(r.Status)
	o[of+"encoding"], o[of+"Location"] = r.Header.Get("Content-Encoding"), r.Header.Get("Location")
	body := r.Body
	if o[of+"encoding"] == "gzip" {
		if unzipped, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, _ = io.ReadAll(unzipped) // what is not gzip is shown as it is
		}
	}
	if r.Status >= 400 && (errorPage.Match(body) || p.method == http.MethodHead) {
		o[of+"error page"] = "yes"
		return
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if o[of+"type"] = kind; len(body) == 0 {
		o[of+"type"], o[of+emptyType] = "", kind
		return
	}
	var doc any
	switch {
	case json.Unmarshal(body, &doc) == nil && strings.Contains(kind, "json"):
		o.leaves(of+"document", p, doc)
	case kind == "application/xml":
		o.leaves(of+"document", p, treeOf(body))
	default:
		o[of+"text"] = p.plain(string(body))
	}
}

// emptyType is the key of the type of a response without a body. Spring's current servers, on Jersey 3, give it none;
// Netflix's own and Spring's earlier ones, on Jersey 1, give it the one that the request accepts, and some clients
// use it to choose how to read nothing.
const emptyType = "type without a body"

// It sends every probe to a published server on Jersey 1 and to a node.
func TestResponsesWithoutABodyHaveTheTypeThatNetflixsServerGives(t *testing.T) {
	installed(t, "java/stacks/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	t.Parallel()
	theirs := startLoneEurekaServer(t, "hoxton", FreeAddr(t))
	ours := StartCluster(t, withSteadyLeader(Config{Nodes: 1})).Nodes[0]
	compared := map[string]int{} // by status and type
	for i, p := range probes() {
		p = p.of(i)
		their, our := p.observe(t, theirs), p.observe(t, ours)
		kind, empty := their[emptyType]
		_, alsoEmpty := our[emptyType]
		if !empty || !alsoEmpty || their["status"] != our["status"] {
			continue
		}
		expect.Equal(t, our[emptyType], kind, "%s: %s has no body, and the type", p.name, our["status"])
		compared[our["status"]+" "+kind]++
	}
	for _, some := range []string{"200 application/json", "204 application/json", "404 application/json"} {
		expect.That(t, compared[some] > 5, "responses without a body were compared only so often: %v", compared)
	}
	t.Logf("compared: %v", compared)
}

// leaves records the values of a document by their paths. In a list of applications only the probe's own is examined.
func (o observation) leaves(at string, p probe, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, of := range v {
			o.leaves(at+"."+key, p, of)
		}
		if len(v) == 0 {
			o[at] = "{}"
		}
	case []any:
		v = slices.DeleteFunc(v, func(of any) bool {
			app, ok := of.(map[string]any)
			name, named := app["name"].(string)
			return ok && named && strings.HasSuffix(at, ".application") && name != "PROBE"+p.number
		})
		for i, of := range v {
			o.leaves(fmt.Sprintf("%s[%d]", at, i), p, of)
		}
		if len(v) == 0 {
			o[at] = "[]"
		}
	case string:
		o[at] = p.plain(v)
	default:
		o[at] = p.plain(jsonOf(v)) + " " // a number or a word of JSON, and not a string of the same letters
	}
	if strings.HasSuffix(at, "versions__delta") && strings.Contains(p.path, "delta") {
		o[at] = "a counter"
	}
}

// treeOf returns XML as JSON would be read: elements by name, those of a list in an array.
func treeOf(body []byte) any {
	type element struct {
		XMLName  xml.Name
		Attr     []xml.Attr `xml:",any,attr"`
		Text     string     `xml:",chardata"`
		Children []element  `xml:",any"`
	}
	var root element
	if err := xml.Unmarshal(body, &root); err != nil {
		return err.Error()
	}
	var tree func(e element) any
	tree = func(e element) any {
		if len(e.Children)+len(e.Attr) == 0 {
			return e.Text
		}
		all := map[string]any{}
		for _, a := range e.Attr {
			all["@"+a.Name.Local] = a.Value
		}
		if text := strings.TrimSpace(e.Text); text != "" {
			all["text"] = text
		}
		for _, c := range e.Children {
			if name := c.XMLName.Local; name == "application" || name == "instance" {
				list, _ := all[name].([]any)
				all[name] = append(list, tree(c))
			} else {
				all[name] = tree(c)
			}
		}
		return all
	}
	return map[string]any{root.XMLName.Local: tree(root)}
}

var stamp = regexp.MustCompile(`\b\d{13}\b`)

// plain returns a text without names and current times.
func (p probe) plain(text string) string {
	text = strings.NewReplacer("PROBE"+p.number, "{app}", "probe"+p.number, "{lower}", "host"+p.number+":web:8080", "{id}", "host"+p.number, "{host}").Replace(text)
	return stamp.ReplaceAllStringFunc(text, func(ms string) string {
		if at, err := strconv.ParseInt(ms, 10, 64); err == nil && time.Since(time.UnixMilli(at)).Abs() < 24*time.Hour {
			return "now"
		}
		return ms
	})
}

// unlike returns the part of an observation that differs from another, in the form of the page. It does not compare
// the bodies of responses with different statuses, nor an error page with its counterpart.
func (o observation) unlike(other observation) string {
	var all []string
	for _, of := range []string{"", "then "} {
		same := o[of+"status"] == other[of+"status"]
		if of == "" || !same {
			all = append(all, of+o[of+"status"])
		}
		if !same || o[of+"error page"]+other[of+"error page"] != "" {
			continue
		}
		both := maps.Clone(o)
		maps.Copy(both, other)
		for _, key := range slices.Sorted(maps.Keys(both)) {
			if strings.HasPrefix(key, "then ") != (of == "then ") || o[key] == other[key] || strings.HasSuffix(key, emptyType) {
				continue
			}
			value, there := o[key]
			short := regexp.MustCompile(`document\.(application\.|applications\.)?(application\[0\]\.)?(instance\[0\]\.|instance\.)?`).ReplaceAllString(key, "")
			if all = append(all, fmt.Sprintf("%s `%.60s`", short, strings.TrimSpace(value))); !there || value == "" {
				all[len(all)-1] = "no " + short
			}
		}
	}
	const most = 6
	if len(all) > most {
		all = append(all[:most], fmt.Sprintf("%d more", len(all)-most))
	}
	return strings.ReplaceAll(strings.Join(all, ", "), "|", "/")
}

func jsonOf(v any) string {
	doc, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers, maps and lists only: cannot happen
	}
	return string(doc)
}
