package postgres

// SameDatabase tells whether a key store's address makes it part of the log's database.
var SameDatabase = sameDatabase

// Queued is how many requests wait for all appenders of a store.
func Queued(s *Store) int {
	n := 0
	for _, a := range s.appenders {
		requests, _ := a.queue.depth()
		n += requests
	}
	return n
}
