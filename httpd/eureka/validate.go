package eureka

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Bounds of what a registration may hold.
const (
	MaxName         = 255      // bytes of an application's name and of an instance's id
	MaxMetadata     = 256      // entries of a metadata map
	MaxMetadataSize = 64 << 10 // bytes of its keys and values together
)

// CheckApp says what is wrong with an application's name (a *ValidationError), nil if nothing is.
func CheckApp(name string) error { return checkName("appName", name) }

// CheckID says what is wrong with an instance's id (a *ValidationError), nil if nothing is.
func CheckID(id string) error { return checkName("instanceId", id) }

func checkName(what, name string) error {
	if name == "" || len(name) > MaxName || name == "." || name == ".." ||
		!utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return invalid(`Invalid %s, it must be 1 to %d bytes of UTF-8 without control characters, and neither "." nor ".."`, what, MaxName)
	}
	return nil
}

// register checks a draft as the registration of an instance of app (upper case) and returns the
// instance. The order of the checks and their texts are upstream's (ApplicationResource.addInstance);
// after them come bounds of our own.
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
	nameAmazonInstance(i)
	if err := checkBounds(i); err != nil {
		return nil, err
	}
	return i, nil
}

// nameAmazonInstance gives an Amazon data center without instance-id the instance's id.
func nameAmazonInstance(i *registry.Instance) {
	const key = "instance-id"
	if i.DataCenter.Name != registry.Amazon {
		return
	}
	for _, p := range i.DataCenter.Metadata {
		if p.Key == key {
			return
		}
	}
	i.DataCenter.Metadata = append(i.DataCenter.Metadata, registry.Pair{Key: key, Value: i.ID()})
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

// CheckMetadata says what is wrong with a metadata map (a *ValidationError), nil if nothing is.
func CheckMetadata(pairs []registry.Pair) error {
	size := 0
	for _, p := range pairs {
		size += len(p.Key) + len(p.Value)
	}
	if len(pairs) > MaxMetadata || size > MaxMetadataSize {
		return invalid("Invalid metadata, it must be at most %d entries of %d bytes together", MaxMetadata, MaxMetadataSize)
	}
	return nil
}
