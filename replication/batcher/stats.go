package batcher

// Stats are the counters and gauges of upstream's AcceptorExecutor and TaskExecutors, by their names.
type Stats struct {
	AcceptedTasks   uint64 // given to Process
	ReplayedTasks   uint64 // given back by workers after congestion and transient errors
	ExpiredTasks    uint64 // dropped as Expired
	OverriddenTasks uint64 // made one with another task of their id
	QueueOverflows  uint64 // dropped as Overflow
	StoppedTasks    uint64 // dropped as Stopped

	SuccessfulExecutions uint64
	TransientErrors      uint64
	PermanentErrors      uint64 // dropped as Permanent
	CongestionIssues     uint64

	// What waits is the sum of these three: the acceptor looks at the first two only when it has to.
	AcceptorQueueSize  int // accepted, not looked at yet
	ReprocessQueueSize int // given back, not looked at yet
	QueueSize          int // pending

	InFlight           int // handed to workers, those that wait as part of a split batch included
	PendingJobRequests int // workers that wait for work
	LastBatchSize      int
}
