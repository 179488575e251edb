package eventlog

// FetchPart is how many scattered events one statement fetches.
const FetchPart = fetchPart
