package s3

// SetPage lets answers have at most n names, so that few documents need several.
func (s *Store) SetPage(n int32) { s.page = n }

// SetMaxSize bounds the size of documents.
func (s *Store) SetMaxSize(n int64) { s.maxSize = n }
