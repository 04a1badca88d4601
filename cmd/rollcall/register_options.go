package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// registerOptions are the flags of register.
type registerOptions struct {
	id, host, ip, vip string
	port              uint16
	status            string
	meta              map[string]string
	lease, interval   time.Duration
	heartbeat         bool
}

func (o *registerOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.id, "id", "", "instance id (default HOST:APP:PORT)")
	f.StringVar(&o.host, "host", "", "host name (default: this machine's)")
	f.StringVar(&o.ip, "ip", "", "IP address (default: this machine's first that is not loopback)")
	f.Uint16Var(&o.port, "port", 8080, "port of the service; 0: none")
	f.StringVar(&o.vip, "vip", "", "VIP address (default: APP in lower case)")
	f.StringVar(&o.status, "status", registry.Up.String(), "UP, DOWN, STARTING, OUT_OF_SERVICE or UNKNOWN")
	f.StringToStringVar(&o.meta, "meta", nil, "metadata, as key=value; may be repeated")
	f.DurationVar(&o.lease, "lease", registry.DefaultDuration*time.Second, "how long the instance lives after its last heartbeat")
	f.DurationVar(&o.interval, "interval", registry.DefaultRenewalInterval*time.Second, "time between two heartbeats")
	f.BoolVar(&o.heartbeat, "heartbeat", false, "keep the instance alive until Ctrl-C, then cancel it")
}

// instance is what the options say, completed by what this machine is called.
func (o *registerOptions) instance(app string) (*registry.Instance, error) {
	status, err := parseStatus("--status", o.status)
	lease, err2 := seconds("--lease", o.lease)
	interval, err3 := seconds("--interval", o.interval)
	host, err4 := o.hostName()
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return nil, err
	}
	return &registry.Instance{
		InstanceID:      cmp.Or(o.id, host+":"+strings.ToLower(app)+":"+strconv.Itoa(int(o.port))),
		HostName:        host,
		App:             strings.ToUpper(app),
		IPAddr:          cmp.Or(o.ip, ownIP()),
		Status:          status,
		Port:            registry.Port{Number: o.port, Enabled: o.port != 0},
		DataCenter:      registry.DataCenter{Name: registry.MyOwn},
		RenewalInterval: interval,
		Duration:        lease,
		Metadata:        pairs(o.meta),
		VIP:             cmp.Or(o.vip, strings.ToLower(app)),
		LastDirty:       time.Now().UnixMilli(),
	}, nil
}

func (o *registerOptions) hostName() (string, error) {
	if o.host != "" {
		return o.host, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("--host: not given, and this machine's name is unknown: %w", err)
	}
	return host, nil
}

func parseStatus(name, word string) (registry.Status, error) {
	status, ok := registry.ParseStatus(word)
	if !ok {
		return 0, fmt.Errorf("%s: %q is not UP, DOWN, STARTING, OUT_OF_SERVICE or UNKNOWN", name, word)
	}
	return status, nil
}

// seconds: the protocol knows whole seconds only.
func seconds(name string, d time.Duration) (int32, error) {
	if d < time.Second || d%time.Second != 0 || d/time.Second > math.MaxInt32 {
		return 0, fmt.Errorf("%s: %v is not a whole number of seconds", name, d)
	}
	return int32(d / time.Second), nil
}

func pairs(m map[string]string) []registry.Pair {
	list := make([]registry.Pair, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, registry.Pair{Key: k, Value: m[k]})
	}
	return list
}

// ownIP is the first address of this machine that others may reach, as a default for the command line.
func ownIP() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	return "127.0.0.1"
}
