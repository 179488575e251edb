package postgres

// Queued is how many requests wait for all appenders of a store.
func Queued(s *Store) int {
	n := 0
	for _, a := range s.appenders {
		requests, _ := a.queue.depth()
		n += requests
	}
	return n
}
