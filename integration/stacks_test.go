package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// stack is a release of a Java client of Eureka in one of its configurations.
type stack struct {
	name    string
	dir     string   // below clients/java, with the driver and the jars of its configurations
	without string   // a regular expression for the jars that this configuration lacks
	flags   []string // of the virtual machine
	routes  bool     // it passes requests on to the instances of an application
	mute    bool     // it ends without a cancel, at any server: its transport ends before its last call
	always  bool     // part of the suite; the others run if ROLLCALL_STACKS, a regular expression, matches the name
}

// stacks are what services run that nobody updates, each with the transport or codec that is in its name.
var stacks = []stack{
	{name: "netflix-1.10-json", dir: netflix1, always: true},
	{name: "netflix-1.10-xml", dir: netflix1, flags: []string{"-Ddriver.xml=true"}, always: true},
	{name: "netflix-1.10-mini", dir: netflix1, flags: []string{"-Deureka.clientDataAccept=compact", "-Deureka.decoderName=JacksonJsonMini"}, always: true},
	{name: "netflix-1.10-jackson", dir: netflix1, flags: []string{"-Deureka.decoderName=JacksonJson", "-Deureka.encoderName=JacksonJson"}},
	{name: "netflix-1.10-compact-xml", dir: netflix1, flags: []string{"-Deureka.clientDataAccept=compact", "-Ddriver.xml=true"}},
	{name: "boot-2.3-jersey", dir: boot23, without: gatewayJars + "|" + zuulJars + "|ribbon"},
	{name: "boot-2.3-resttemplate", dir: boot23, without: gatewayJars + "|" + zuulJars + "|ribbon|jersey"},
	{name: "boot-2.3-webclient", dir: boot23, without: gatewayJars + "|" + zuulJars + "|ribbon|jersey", flags: reactive, mute: true},
	{name: "boot-2.3-zuul-ribbon", dir: boot23, without: gatewayJars + "|spring-webflux", flags: zuul, routes: true, always: true},
	{name: "boot-2.3-gateway-ribbon", dir: boot23, without: zuulJars, flags: slices.Concat(gateway, ribbon), routes: true},
	{name: "boot-2.7-resttemplate", dir: "stacks/target/2.7.18", without: gatewayJars, always: true},
	{name: "boot-2.7-webclient", dir: "stacks/target/2.7.18", without: gatewayJars, flags: reactive, mute: true},
	{name: "boot-2.7-gateway", dir: "stacks/target/2.7.18", flags: gateway, routes: true},
	{name: "boot-3.0-resttemplate", dir: "stacks/target/3.0.13", without: gatewayJars},
	{name: "boot-3.0-webclient", dir: "stacks/target/3.0.13", without: gatewayJars, flags: reactive, mute: true, always: true},
	{name: "boot-3.2-resttemplate", dir: "stacks/target/3.2.12", without: gatewayJars},
	{name: "boot-3.2-webclient", dir: "stacks/target/3.2.12", without: gatewayJars, flags: reactive, mute: true},
	{name: "boot-3.4-restclient", dir: boot34, without: gatewayJars},
	{name: "boot-3.4-webclient", dir: boot34, without: gatewayJars, flags: reactive, mute: true},
	{name: "boot-3.4-gateway", dir: boot34, flags: gateway, routes: true, always: true},
}

const (
	netflix1    = "netflix1/target"
	boot23      = "stacks/target/2.3.12.RELEASE"
	boot34      = "stacks/target/3.4.2"
	gatewayJars = `cloud-(starter-)?gateway`
	zuulJars    = `zuul|spring-webmvc|tomcat-embed-(core|websocket)|starter-tomcat`
)

var (
	reactive = []string{"-Deureka.client.webclient.enabled=true"}
	gateway  = []string{"-Dspring.main.web-application-type=reactive", "-Dspring.cloud.gateway.discovery.locator.enabled=true",
		"-Dspring.cloud.gateway.discovery.locator.lower-case-service-id=true", "-Dspring.cloud.loadbalancer.cache.enabled=false"}
	ribbon = []string{"-Dribbon.ServerListRefreshInterval=1000"}
	zuul   = append([]string{"-Dspring.main.web-application-type=servlet",
		"-Dspring.main.sources=org.springframework.cloud.netflix.zuul.ZuulProxyMarkerConfiguration"}, ribbon...)
)

// lived is a stack in its process, which runs it against one kind of server after the other.
type lived struct {
	stack
	*lifeCycle
	driver *driver
	port   string          // for the requests that it passes on
	mark   int             // up to here its log was read
	known  map[string]bool // what it warned of with a published server
}

// launch starts the stack's virtual machine, a small one, because there are many.
func (s stack) launch(t *testing.T) *lived {
	t.Helper()
	dir := filepath.Join("clients/java", s.dir)
	need.OK(t, expect.Err(os.Stat(dir)))
	jars := need.Got(filepath.Glob(filepath.Join(dir, "lib/*.jar")))(t)
	path := []string{"classes"} // the jar names all others
	for _, jar := range jars {
		if jar = filepath.Base(jar); s.without == "" || !regexp.MustCompile(s.without).MatchString(jar) {
			path = append(path, "lib/"+jar)
		}
	}
	l := &lived{stack: s, port: portOf(t, FreeAddr(t)), known: map[string]bool{}}
	flags := append([]string{"-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dserver.port=" + l.port,
		"-Dorg.slf4j.simpleLogger.showThreadName=false", "-Dlogging.pattern.console=%p %c - %m%n"}, s.flags...)
	main := "driver.SpringClient"
	if s.dir == netflix1 {
		main = "driver.Netflix1Client"
	}
	l.driver = startJava(t, filepath.Join("java", s.dir), append(flags, "-cp", strings.Join(path, ":"), main)...)
	l.driver.overrides = true
	return l
}

// It takes every stack through one life with a published Eureka server, with a cluster that has consensus and with
// one that has not: nothing in it may be missing, and no stack may warn of anything that it does not warn of with the
// published server.
func TestStacksLiveAsWithAPublishedServer(t *testing.T) {
	installed(t, "java/stacks/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	t.Parallel()
	var all lives
	for _, s := range stacks {
		if chosen := os.Getenv("ROLLCALL_STACKS"); s.always && chosen == "" || chosen != "" && regexp.MustCompile(chosen).MatchString(s.name) {
			all = append(all, s.launch(t))
		}
	}
	if !t.Run("published", func(t *testing.T) {
		addr := FreeAddr(t)
		// The server of their time: the body of the newer one's 404, Spring Boot's error page, keeps Netflix's own
		// transport from registering again, forever.
		start := func() *Node { return startLoneEurekaServer(t, "hoxton", addr) }
		c := &Cluster{Nodes: []*Node{start()}, t: t}
		all.live(t, c, func(bool) {
			c.Nodes[0].process.Kill()
			c.Nodes[0] = start()
		})
	}) {
		return // there is nothing to compare with
	}
	for _, ap := range []bool{false, true} {
		t.Run(map[bool]string{false: "cp", true: "ap"}[ap], func(t *testing.T) {
			cfg := withSteadyLeader(smallConfig(ap, 2))
			if ap {
				cfg.Settings["data.sync"] = "always" // the last second before the end is checked, too
			}
			c := StartCluster(t, cfg)
			all.live(t, c, func(lose bool) {
				for _, n := range c.Nodes {
					n.process.Kill()
				}
				for _, n := range c.Nodes {
					if lose {
						need.OK(t, os.RemoveAll(n.Dir))
					}
					n.Start(t)
				}
				c.WaitReady()
			})
		})
	}
}

// lives are stacks that do each step of a life together, so that one waits while the others do.
type lives []*lived

// live runs one life of all stacks. restart kills all servers and starts them again, with lose without their data;
// the published server keeps none.
func (all lives) live(t *testing.T, c *Cluster, restart func(lose bool)) {
	published, term := len(c.Nodes) == 1, uint64(0)
	if !published {
		term = need.Got(c.Nodes[0].Status())(t).Term
	}
	all.start(t, c)
	all.route(t)
	all.seen(t, "UP")
	all.renewed(t, func(i *Listed) int64 { return i.LeaseInfo.Renewed }, func(*lived) {})
	all.each(func(l *lived) { need.OKf(t, l.driver.Override("OUT_OF_SERVICE"), "%s: override", l.name) })
	all.seen(t, "OUT_OF_SERVICE")
	all.renewed(t, func(i *Listed) int64 { return i.LeaseInfo.Renewed }, func(*lived) {})
	all.each(func(l *lived) { need.OKf(t, l.driver.Restore(), "%s: end of the override", l.name) })
	all.seen(t, "UP")
	registered := func(i *Listed) int64 { return i.LeaseInfo.Registered }
	all.renewed(t, registered, func(l *lived) { mustCancel(t, l.through, l.app, l.id) })
	all.seen(t, "UP")
	if published || need.Got(c.Nodes[0].Status())(t).Term == term {
		all.warnings(t, published)
	} else {
		all.warnings(t, published, unreached) // the machine was so busy that a leader was lost
	}
	all.haveEqualHashes(t)

	if !published {
		before := all.shown(t, registered)
		restart(false)
		all.seen(t, "UP")
		for i, after := range all.shown(t, registered) {
			expect.Equal(t, after, before[i], "%s: after all servers were killed it is registered at", all[i].name)
		}
	}
	restart(true)
	all.seen(t, "UP")
	all.warnings(t, published, unreached)
	all.stop(t)
	all.warnings(t, published, interrupted, ended)
}

func (all lives) each(do func(l *lived)) {
	for _, l := range all {
		do(l)
	}
}

// start begins the lives, two at a time: Spring takes seconds of a processor.
func (all lives) start(t *testing.T, c *Cluster) {
	var urls []string
	for _, n := range c.Nodes {
		urls = append(urls, n.Eureka())
	}
	var starts errgroup.Group
	starts.SetLimit(2)
	for i, l := range all {
		life := newLifeCycle(c, c.Nodes[i%len(c.Nodes)], l.name, l.driver)
		l.lifeCycle = &life
		starts.Go(func() error {
			if err := l.driver.Start(strings.Join(urls, ","), l.app, l.id, l.lease); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			return nil
		})
	}
	need.OKf(t, starts.Wait(), "start")
	all.seen(t, "UP")
}

// seen waits until every server and every stack's own copy of the registry show the stacks' instances in a status.
func (all lives) seen(t *testing.T, status string) {
	t.Helper()
	all.each(func(l *lived) { l.everywhere(t, status) })
	all.each(func(l *lived) { l.lifeCycle.seen(t, l.id, status) })
}

// shown returns a time for each instance, as shown by the servers that the stacks use.
func (all lives) shown(t *testing.T, at func(*Listed) int64) []int64 {
	t.Helper()
	times := make([]int64, len(all))
	for i, l := range all {
		instance, err := readUntilTaken(func() (*Listed, error) { return l.through.Lookup(l.app, l.id) })
		need.That(t, err == nil && instance != nil, "%s: shown are %v, %v, want the instance", l.name, instance, err)
		times[i] = at(instance)
	}
	return times
}

// renewed does something to every stack and waits until the servers show a later time for it.
func (all lives) renewed(t *testing.T, at func(*Listed) int64, do func(*lived)) {
	t.Helper()
	before := all.shown(t, at)
	all.each(do)
	for i, l := range all {
		Eventually(t, clientLimit, l.name+" renews or registers again", func() error {
			instance, err := l.through.Lookup(l.app, l.id)
			if err == nil && (instance == nil || at(instance) <= before[i]) {
				err = fmt.Errorf("shown is %+v", instance)
			}
			return err
		})
	}
}

// route makes the stacks that pass requests on find an instance, and miss it when it is gone.
func (all lives) route(t *testing.T) {
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "behind "+r.URL.Path) }))
	defer behind.Close()
	port := need.Got(strconv.Atoi(portOf(t, behind.Listener.Addr().String())))(t)
	through := all[0].through
	mustRegister(t, through, Instance{App: "BEHIND", ID: "behind", Port: port})
	for _, there := range []bool{true, false} {
		all.each(func(l *lived) {
			if !l.routes {
				return
			}
			Eventually(t, clientLimit, fmt.Sprintf("%s passes requests on: %v", l.name, there), func() error {
				response := serverAt("127.0.0.1:" + l.port).Get("/behind/it")
				return unless((response.Status == 200 && string(response.Body) == "behind /it") == there, "%v", response)
			})
		})
		if there {
			mustCancel(t, through, "BEHIND", "behind")
		}
	}
}

var hashOf = regexp.MustCompile(`"apps__hashcode":"([A-Z0-9_]*)"`)

// haveEqualHashes checks that the full list, the delta and every client's copy have one hash.
func (all lives) haveEqualHashes(t *testing.T) {
	all.each(func(l *lived) {
		Eventually(t, clientLimit, l.name+" and its server agree on the hash", func() error {
			own, err := l.driver.Hash()
			if err != nil {
				return err
			}
			for _, list := range []string{"apps/", "apps/delta"} {
				response := l.through.Get("/eureka/" + list)
				if hash := hashOf.FindSubmatch(response.Body); hash == nil || string(hash[1]) != own {
					return fmt.Errorf("%s has %q, the client %q", list, hash, own)
				}
			}
			return nil
		})
	})
}

// stop ends the lives by the clients' own shutdown, which cancels them.
func (all lives) stop(t *testing.T) {
	var stops errgroup.Group
	for _, l := range all {
		stops.Go(l.driver.Stop)
	}
	expect.OKf(t, stops.Wait(), "stop")
	all.each(func(l *lived) {
		if l.mute {
			// its call may have arrived in time
			_ = untilNotRefused(func() Response { return l.through.Cancel(l.app, l.id) })
			_ = l.unread(t) // about its transport's end
		}
		l.everywhere(t, "")
	})
}

var (
	warning  = regexp.MustCompile(`(?m)^(?:WARN|ERROR) .*$`)
	variable = regexp.MustCompile(`\b[0-9a-f]{8}\b|\d+`)
	// responded matches the status of a response.
	responded = regexp.MustCompile(`(?:status code|message:) (\d{3})\b`)
)

// What a stack may warn of whatever it does with a published server, as regular expressions.
const (
	// unlucky: a call took longer than the second between two, a request to pass on came while its target came or
	// went, threads of the client had not ended before it, and one of its libraries did not find its own
	// configuration, which no server has a part in.
	unlucky = `TimedSupervisorTask|No servers available for service|WebappClassLoaderBase|netflix\.config\.ConfigurationManager`
	// interrupted: a call that the client itself broke off, because it took too long or because the client ends.
	interrupted = `(InterruptedException|processing aborted|: null)$|another thread is updating|was unable to (send|refresh)`
	// ended: a list came while the parts that Spring would show it to were already torn down, or a call after the
	// transport was.
	ended = `CachingRouteLocator|Cannot fetch registry|Connection pool shut down`
	// unreached: a call failed. How many do and which, while servers come and go, depends on timing.
	unreached = `RetryableEurekaHttpClient - Request execution fail|was unable to (send|refresh)|registration failed|InstanceInfoReplicator|` +
		`HttpClientConnect|does not allow the delta revision|Cannot fetch registry|CachingRouteLocator`
)

// unread returns what the stack has logged since the last call.
func (l *lived) unread(t *testing.T) string {
	log := need.Got(os.ReadFile(l.driver.stderr))(t)
	defer func() { l.mark = len(log) }()
	return string(log[l.mark:])
}

// warnings checks what the stacks have warned of since the last check: with the published server it is recorded, and
// otherwise nothing may be new but what is allowed.
func (all lives) warnings(t *testing.T, published bool, allowed ...string) {
	t.Helper()
	all.each(func(l *lived) {
		log, allowed := l.unread(t), append(allowed, unlucky)
		if strings.Contains(log, "task supervisor timed out") {
			allowed = append(allowed, interrupted)
		}
		passes, said := regexp.MustCompile(strings.Join(allowed, "|")), map[string]bool{}
		for _, line := range warning.FindAllString(log, -1) {
			kind := variable.ReplaceAllString(line, "#") + responded.FindString(line)
			if published {
				l.known[kind] = true
			}
			ok := l.known[kind] || passes.MatchString(line) && !refused(line)
			expect.That(t, ok || said[kind], "%s warns of what it does not warn of with a published server: %s", l.name, line)
			said[kind] = said[kind] || !ok
		}
	})
}

// refused reports whether a server responded to a call with a status other than those of a node that knows no
// leader, or has started but not loaded its registry yet: a published server cannot be reached until
// it has started.
func refused(line string) bool {
	status := responded.FindStringSubmatch(line)
	return status != nil && status[1] != "403" && status[1] != "503"
}
