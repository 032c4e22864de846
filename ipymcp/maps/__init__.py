"""Maps: a call of one tool for every row of a table or list.

Rows become arguments (`rows`), and calls are made within limits (`run`), in this process or on a Dask cluster
(`cluster`). A running map asks for consent and shows its progress (`running`); its outcomes go to a list (`result`), to
the reader of a stream (`stream`), or from there to a file (`file`).
"""
