package query

// SetScan looks at fewer events for a page than MaxScan.
func (s *Service) SetScan(n int) { s.scan = n }
