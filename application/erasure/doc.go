// Package erasure destroys the keys that a person's data are sealed with, and proves it.
//
// A [Service] stores requests for erasure, requires the approval of a second person, and
// returns certificates; the HTTP API calls it. A [Worker] executes approved requests. A
// [Gate] stops a restored database from serving data that was erased since its backup. The
// events stay, so the chain of the log stays valid; their personal values cannot be read
// any more.
//
// A request goes through the states of shredding.ErasureState. Each step is one
// transaction of the register or one call that may be repeated, and the stored state
// decides the next step, so any worker can continue after one that died. Several may work
// at once: the register moves a request from a revision only once. The package never
// deletes events, and never restores a key.
package erasure
