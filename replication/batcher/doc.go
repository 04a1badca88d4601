// Package batcher is the batching task dispatcher of Netflix Eureka (com.netflix.eureka.util.batcher),
// with its roles and names, for one receiver of tasks:
//
//   - the Dispatcher accepts tasks and never blocks its caller;
//   - the acceptor owns all state: the acceptor and reprocess queues, the pending tasks by id in their
//     order, and the work that workers asked for; it is one goroutine, woken by events, and polls nothing;
//   - the executor's workers ask for work, run the Processor, and give back what is to be tried again;
//   - the Processor transmits tasks and says what became of them;
//   - a holder is a task with its id, its expiry and the time of its first submission;
//   - the trafficShaper delays all hand-outs after congestion and network failures.
//
// It knows nothing of registries: what a task is, and how two of one id merge, its user says.
//
// Where it differs from upstream, it is to lose less. Upstream's batch waits for its delay even when it
// is full, and a task that is renewed more often than the delay holds back all others for ever; here the
// time of the first submission counts, and a full batch leaves at once. Upstream's workers overtake each
// other; here an id that a worker has is not handed out again. Upstream drops a batch that is refused,
// and a failed task that a newer one supersedes; here the batch is split until the task that spoils it
// is alone, and the failed task is merged into the newer one.
package batcher
