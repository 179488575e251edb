package custom

// SetTrialEvents changes how many events a definition is tried on.
func (s *Service) SetTrialEvents(n int) { s.trialEvents = n }
