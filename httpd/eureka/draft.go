package eureka

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// draft is an instance while it is being read, in either format. It begins with the values that upstream's full codec
// assumes for what a document leaves out.
type draft struct {
	lease         registry.Lease
	instance      *registry.Instance
	hasDataCenter bool
}

func newDraft() *draft {
	return &draft{instance: &registry.Instance{
		Status:     registry.Up,
		Port:       registry.Port{Number: 7001, Enabled: true},
		SecurePort: registry.Port{Number: 7002},
		CountryID:  1,
	}}
}

// finish returns the lease that was read; its times are those that a server showed.
func (d *draft) finish() *registry.Lease {
	l := d.lease
	l.Instance = d.instance
	l.Interval, l.Duration, _ = registry.ClampLease(d.instance.RenewalInterval, d.instance.Duration)
	return &l
}

// port is a port of an instance and its name in documents.
type port struct {
	name string
	of   func(*registry.Instance) *registry.Port
}

// ports lists all ports, in the order of documents.
var ports = [...]port{
	{"port", func(i *registry.Instance) *registry.Port { return &i.Port }},
	{"securePort", func(i *registry.Instance) *registry.Port { return &i.SecurePort }},
}

// portNamed returns the port with a name, or nil.
func portNamed(name []byte) *port {
	for n := range ports {
		if ports[n].name == string(name) {
			return &ports[n]
		}
	}
	return nil
}

// isScalar reports whether an instance has a scalar field of this name that is not ignored.
func (d *draft) isScalar(name []byte) bool {
	switch string(name) {
	case "status", "overriddenStatus", "overriddenstatus", "countryId", "lastUpdatedTimestamp",
		"lastDirtyTimestamp", "actionType", "app", "appGroupName", "sid":
		return true
	}
	return d.textField(name) != nil
}

// textField returns the storage of a field that is kept as given.
func (d *draft) textField(name []byte) *string {
	i := d.instance
	switch string(name) {
	case "instanceId":
		return &i.InstanceID
	case "hostName":
		return &i.HostName
	case "ipAddr":
		return &i.IPAddr
	case "homePageUrl":
		return &i.HomePageURL
	case "statusPageUrl":
		return &i.StatusPageURL
	case "healthCheckUrl":
		return &i.HealthCheckURL
	case "secureHealthCheckUrl":
		return &i.SecureHealthURL
	case "vipAddress":
		return &i.VIP
	case "secureVipAddress":
		return &i.SecureVIP
	case "asgName":
		return &i.ASG
	}
	return nil
}

// setScalar sets a field that isScalar knows to the text of its value.
func (d *draft) setScalar(name, text []byte) (err error) {
	i := d.instance
	switch string(name) {
	case "status":
		i.Status = parseStatus(text)
	case "overriddenStatus", "overriddenstatus": // the later one wins, as in upstream
		i.Overridden = parseStatus(text)
	case "countryId":
		err = setInt32(&i.CountryID, text)
	case "lastUpdatedTimestamp":
		err = setTimestamp(&d.lease.UpdatedAt, text)
	case "lastDirtyTimestamp":
		err = setTimestamp(&i.LastDirty, text)
	case "actionType":
		d.lease.Action = parseAction(text)
	case "app":
		i.App = strings.ToUpper(string(text))
	case "appGroupName":
		i.AppGroup = strings.ToUpper(string(text))
	case "sid":
		i.SID = shownSID(string(text))
	default:
		*d.textField(name) = string(text)
	}
	if err != nil {
		return unparsable("%s: %w", name, err)
	}
	return nil
}

// isLeaseField reports whether leaseInfo has a field of this name.
func isLeaseField(name []byte) bool {
	switch string(name) {
	case "renewalIntervalInSecs", "durationInSecs", "registrationTimestamp", "lastRenewalTimestamp",
		"renewalTimestamp", "evictionTimestamp", "serviceUpTimestamp":
		return true
	}
	return false
}

// setLease sets a field that isLeaseField knows to the text of its value.
func (d *draft) setLease(name, text []byte) (err error) {
	switch string(name) {
	case "renewalIntervalInSecs":
		err = setSeconds(&d.instance.RenewalInterval, text)
	case "durationInSecs":
		err = setSeconds(&d.instance.Duration, text)
	case "registrationTimestamp":
		err = setTimestamp(&d.lease.RegisteredAt, text)
	case "lastRenewalTimestamp", "renewalTimestamp": // the second is an old name
		err = setTimestamp(&d.lease.RenewedAt.Wall, text)
	case "evictionTimestamp":
		err = setTimestamp(&d.lease.EvictedAt, text)
	case "serviceUpTimestamp":
		err = setTimestamp(&d.lease.ServiceUpAt, text)
	}
	if err != nil {
		return unparsable("leaseInfo %s: %w", name, err)
	}
	return nil
}

// setDataCenter checks the name of a data center; only Amazon's may have metadata.
func (d *draft) setDataCenter(name string, metadata []registry.Pair) error {
	d.hasDataCenter = true
	switch name {
	case registry.Amazon:
		d.instance.DataCenter.Metadata = metadata
	case registry.MyOwn, registry.Netflix, "":
	default:
		return unparsable("dataCenterInfo name %q: it must be %s, %s or %s", name, registry.MyOwn, registry.Netflix, registry.Amazon)
	}
	d.instance.DataCenter.Name = name
	return nil
}

// setMetadata drops the marks of Java classes, which are not entries of the map.
func (d *draft) setMetadata(pairs []registry.Pair) {
	if len(pairs) == 1 && pairs[0] == (registry.Pair{Key: "class", Value: emptyMapClass}) {
		return
	}
	d.instance.Metadata = pairs
}

// appendEntry adds an entry of a map, unless it marks a Java class.
func appendEntry(pairs []registry.Pair, key, value string) []registry.Pair {
	if key == "@class" {
		return pairs
	}
	return append(pairs, registry.Pair{Key: key, Value: value})
}

// parseStatus reads a status word in any case; any other text is UNKNOWN.
func parseStatus(text []byte) registry.Status {
	status, _ := registry.ParseStatus(strings.ToUpper(string(bytes.TrimSpace(text))))
	return status
}

// parseAction reads an actionType; any other text means no action.
func parseAction(text []byte) registry.Action {
	for _, a := range []registry.Action{registry.ActionAdded, registry.ActionModified, registry.ActionDeleted} {
		if a.String() == string(text) {
			return a
		}
	}
	return registry.ActionNone
}

// parseInteger reads a whole number, even one written as a fraction or with an exponent, and cuts off its fraction as
// upstream does. A number outside int64 is an error of strconv.ErrRange and comes with the nearest int64.
func parseInteger(text []byte) (int64, error) {
	text = bytes.TrimSpace(text)
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return n, err
	}
	if len(bytes.Trim(text, "0123456789+-.eE")) > 0 {
		return 0, err // no names of infinities, no hexadecimal fractions
	}
	f, err := strconv.ParseFloat(string(text), 64)
	switch {
	case f >= math.MaxInt64:
		return math.MaxInt64, strconv.ErrRange
	case f <= math.MinInt64:
		return math.MinInt64, strconv.ErrRange
	}
	return int64(f), err
}

// In the next four functions an empty text, which fargo sends for unset fields, leaves the default.

// setTimestamp reads ms since the epoch. A negative number counts as not given.
func setTimestamp(to *int64, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	n, err := parseInteger(text)
	*to = max(n, 0)
	return err
}

// setSeconds reads a duration in seconds; one beyond int32 becomes the nearest int32, because a lease out of bounds is
// clamped later and not refused.
func setSeconds(to *int32, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	n, err := parseInteger(text)
	*to = int32(min(max(n, 0), math.MaxInt32))
	if errors.Is(err, strconv.ErrRange) {
		return nil
	}
	return err
}

func setInt32(to *int32, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	n, err := parseInteger(text)
	if err == nil && n != int64(int32(n)) {
		err = strconv.ErrRange
	}
	*to = int32(n)
	return err
}

// setPort reads a port's number.
func setPort(to *registry.Port, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	n, err := parseInteger(text)
	if err != nil || n < -1 || n > math.MaxUint16 {
		return unparsable("port %q: it must be a number from 0 to 65535, or -1 for none", clip(text))
	}
	to.None, to.Number = n == -1, uint16(max(n, 0))
	return nil
}

// setEnabled reads a port's flag.
func setEnabled(to *registry.Port, text []byte) error {
	switch strings.ToLower(string(text)) {
	case "true", "1":
		to.Enabled = true
	case "false", "0":
		to.Enabled = false
	case "":
	default:
		return unparsable("port enabled %q: it must be true or false", clip(text))
	}
	return nil
}

// clip shortens a client's text for an error message.
func clip(text []byte) string { return order.CutText(string(text), 64) }

// Bounds of a registration's contents.
const (
	maxMetadata     = 256      // entries of a metadata map
	maxMetadataSize = 64 << 10 // total bytes of its keys and values
)

// CheckApp returns what is wrong with an application's name (a *ValidationError), or nil.
func CheckApp(name string) error { return checkName("appName", name) }

// CheckID returns what is wrong with an instance's id (a *ValidationError), or nil.
func CheckID(id string) error { return checkName("instanceId", id) }

func checkName(what, name string) error {
	if !order.ValidName(name) {
		return invalid(`Invalid %s, it must be 1 to %d bytes of UTF-8 without control characters, and neither "." nor ".."`, what, order.MaxName)
	}
	return nil
}

// register checks a draft as the registration of an instance of app (upper case) and returns the instance. The order
// of the checks and their texts are upstream's (ApplicationResource.addInstance); our own bounds follow.
func (d *draft) register(app string) (*registry.Instance, error) {
	i := d.instance
	switch {
	case i.ID() == "":
		return nil, invalid("Missing instanceId")
	case i.HostName == "":
		return nil, invalid("Missing hostname")
	case i.IPAddr == "":
		return nil, invalid("Missing ip address")
	case i.App == "":
		return nil, invalid("Missing appName")
	}
	if err := CheckApp(i.App); err != nil {
		return nil, err
	}
	switch {
	case i.App != app:
		return nil, invalid("Mismatched appName, expecting %s but was %s", app, i.App)
	case !d.hasDataCenter:
		return nil, invalid("Missing dataCenterInfo")
	case i.DataCenter.Name == "":
		return nil, invalid("Missing dataCenterInfo Name")
	}
	named := func(p registry.Pair) bool { return p.Key == "instance-id" }
	if dc := &i.DataCenter; dc.Name == registry.Amazon && !slices.ContainsFunc(dc.Metadata, named) {
		dc.Metadata = append(dc.Metadata, registry.Pair{Key: "instance-id", Value: i.ID()})
	}
	if err := checkBounds(i); err != nil {
		return nil, err
	}
	return i, nil
}

func checkBounds(i *registry.Instance) error {
	if err := CheckID(i.ID()); err != nil {
		return err
	}
	if strings.Count(i.VIP, ",") >= registry.MaxVIPs || strings.Count(i.SecureVIP, ",") >= registry.MaxVIPs {
		return invalid("Invalid vipAddress, it must have at most %d parts", registry.MaxVIPs)
	}
	if err := CheckMetadata(i.Metadata); err != nil {
		return err
	}
	return CheckMetadata(i.DataCenter.Metadata)
}

// CheckMetadata returns what is wrong with a metadata map (a *ValidationError), or nil.
func CheckMetadata(pairs []registry.Pair) error {
	size := 0
	for _, p := range pairs {
		size += len(p.Key) + len(p.Value)
	}
	if len(pairs) > maxMetadata || size > maxMetadataSize {
		return invalid("Invalid metadata, it must be at most %d entries of %d bytes together", maxMetadata, maxMetadataSize)
	}
	return nil
}
