// Package batcher is the batching task dispatcher of Netflix Eureka (com.netflix.eureka.util.batcher),
// with its roles and names, for one receiver of tasks:
//
//   - the Dispatcher accepts tasks and never blocks its caller;
//   - the acceptor owns all state: the acceptor and reprocess queues, the pending tasks by id in their
//     order, and the work that workers asked for; it is one goroutine, woken by events, and polls nothing;
//   - the executor's workers ask for work, run the Processor, and give back what is to be tried again;
//   - a holder is a task with its id, its expiry and the time of its first submission;
//   - the trafficShaper delays all hand-outs after congestion and network failures.
//
// It knows nothing of registries: what a task is, and how two of one id merge, its user says.
package batcher
