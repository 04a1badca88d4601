package eureka

// Format is the form of a document. The zero value is full JSON.
type Format struct {
	XML     bool // else JSON
	Compact bool // the reduced set of fields that X-Eureka-Accept: compact asks for
	V1      bool // XML only: statuses other than UP, DOWN and STARTING are written as DOWN
}

// The values of versions__delta. A delta's version is a counter.
const (
	// FullVersion is the version of a full fetch. With -1 Netflix's client would never ask for a delta.
	FullVersion = "1"
	// VIPVersion is the version of the answer to a query by VIP address.
	VIPVersion = "-1"
)

// What upstream's codecs name the classes behind the documents; its readers require them.
const (
	ownDataCenterClass    = "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo"
	amazonDataCenterClass = "com.netflix.appinfo.AmazonInfo"
	emptyMapClass         = "java.util.Collections$EmptyMap"
	statusInfoClass       = "com.netflix.eureka.util.StatusInfo"
)
