"""The distributed hash table: SpiderCast's nine operations on the replicated store."""
