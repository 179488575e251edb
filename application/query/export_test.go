package query

// SetScan looks at fewer events for a page than MaxScan.
func (s *Service) SetScan(n int) { s.scan = n }

// Kept counts the events that are kept of the ends of all partitions.
func (f *Feeds) Kept() (n int) {
	for _, one := range f.tails.byPartition {
		n += len(one.run)
	}
	return n
}
