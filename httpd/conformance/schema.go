package conformance

import (
	"maps"
	"slices"
	"testing"
)

// The keys of an instance: those that must be there and those that may. Strict clients refuse a
// document for one key more, others fail for one less.
var (
	fullRequired = []string{"hostName", "app", "ipAddr", "status", "overriddenStatus", "port", "securePort", "countryId",
		"dataCenterInfo", "leaseInfo", "metadata", "isCoordinatingDiscoveryServer", "lastUpdatedTimestamp", "lastDirtyTimestamp"}
	fullOptional = []string{"instanceId", "sid", "appGroupName", "homePageUrl", "statusPageUrl", "healthCheckUrl",
		"secureHealthCheckUrl", "vipAddress", "secureVipAddress", "actionType", "asgName"}
	compactRequired = []string{"app", "ipAddr", "dataCenterInfo", "hostName", "status", "lastUpdatedTimestamp", "port", "securePort"}
	compactOptional = []string{"instanceId", "vipAddress", "secureVipAddress", "actionType", "asgName"}
)

var statusWords = []string{"UP", "DOWN", "STARTING", "OUT_OF_SERVICE", "UNKNOWN"}

// wantKeys fails unless an object has exactly these keys.
func wantKeys(t *testing.T, object map[string]any, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(object)); !slices.Equal(got, want) {
		t.Errorf("keys are %v, want %v", got, want)
	}
}

// checkKeys fails unless an object has all of required and nothing beyond optional.
func checkKeys(t *testing.T, object map[string]any, required, optional []string) {
	t.Helper()
	for _, key := range required {
		if _, ok := object[key]; !ok {
			t.Errorf("key %q is missing in %v", key, object)
		}
	}
	for key := range object {
		if !slices.Contains(required, key) && !slices.Contains(optional, key) {
			t.Errorf("key %q is not of the protocol", key)
		}
	}
}

func checkApplications(t *testing.T, doc map[string]any, compact bool) {
	t.Helper()
	wantKeys(t, doc, "applications")
	applications := doc["applications"].(map[string]any)
	wantKeys(t, applications, "versions__delta", "apps__hashcode", "application")
	text(t, applications, "versions__delta")
	text(t, applications, "apps__hashcode")
	list, ok := applications["application"].([]any)
	if !ok {
		t.Fatalf("application is %v, want an array", applications["application"])
	}
	for _, app := range list {
		checkApplication(t, app, compact)
	}
}

func checkApplication(t *testing.T, app any, compact bool) {
	t.Helper()
	object := app.(map[string]any)
	wantKeys(t, object, "name", "instance")
	instances, ok := object["instance"].([]any)
	if !ok {
		t.Fatalf("instance is %v, want an array", object["instance"])
	}
	for _, instance := range instances {
		checkInstance(t, instance, compact)
		if text(t, instance, "app") != object["name"] {
			t.Errorf("instance of %s in application %s", text(t, instance, "app"), object["name"])
		}
	}
}

func checkInstance(t *testing.T, instance any, compact bool) {
	t.Helper()
	object := instance.(map[string]any)
	if compact {
		checkKeys(t, object, compactRequired, compactOptional)
	} else {
		checkFull(t, object)
	}
	if !slices.Contains(statusWords, text(t, object, "status")) {
		t.Errorf("status is %v", object["status"])
	}
	for _, port := range []string{"port", "securePort"} {
		wantKeys(t, object[port].(map[string]any), "$", "@enabled")
	}
	center := object["dataCenterInfo"].(map[string]any)
	if center["name"] == "Amazon" {
		wantKeys(t, center, "@class", "name", "metadata")
	} else {
		wantKeys(t, center, "@class", "name")
	}
}

func checkFull(t *testing.T, object map[string]any) {
	t.Helper()
	checkKeys(t, object, fullRequired, fullOptional)
	wantKeys(t, object["leaseInfo"].(map[string]any), "renewalIntervalInSecs", "durationInSecs", "registrationTimestamp",
		"lastRenewalTimestamp", "evictionTimestamp", "serviceUpTimestamp")
	for _, key := range []string{"overriddenStatus", "isCoordinatingDiscoveryServer", "lastUpdatedTimestamp", "lastDirtyTimestamp"} {
		text(t, object, key)
	}
}
